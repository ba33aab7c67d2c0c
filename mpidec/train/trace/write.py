"""A trace of all ranks, to be opened in ui.perfetto.dev or chrome://tracing: who did what when, and who waited."""

from __future__ import annotations

import gzip
import socket

import numpy as np
import torch

from mpidec.communicator import Network
from mpidec.errors import UserError
from mpidec.folder import Folder
from mpidec.optim.agreement import one_by_one
from mpidec.spans import ENDED, FIELDS, STARTED, Recorder
from mpidec.train.trace.clocks import Reading, Times, aligned, compare
from mpidec.train.trace.events import Track, text

FILE = "trace.json.gz"  # a tenth of the plain text, and both viewers open it as it is


def start_trace(network: Network, recorder: Recorder | None = None) -> Reading:
    """From here on ``network`` keeps what its rank does; a collective call, before the optimizer is made.

    Returns how the clocks differ now, for ``write_trace``.
    """
    network.recorder = recorder or Recorder()
    return compare(network.transport, network.recorder.clock)


def write_trace(network: Network, started: Reading, folder: Folder | None) -> None:
    """Write the spans of all ranks into ``FILE`` in the ``folder``, which rank 0 has; a collective call.

    Every rank sends its own after the one before it, so that rank 0 never holds more than two. Raises ``UserError`` on
    all ranks where the file cannot be written.
    """
    transport, recorder = network.transport, network.recorder
    assert recorder is not None, "start_trace comes first"
    assert (folder is not None) == (transport.rank == 0), "rank 0 alone writes"
    clocks = started, compare(transport, recorder.clock)
    mine = spans(recorder, *clocks)
    first = int(mine[0, STARTED]) if len(mine) else clocks[0].at + clocks[0].offset
    track = Track(socket.gethostname(), recorder.names, len(mine), recorder.left_out, first, clocks)
    tracks = transport.all_gather_objects(track)
    failure = None
    buffer = torch.from_numpy(mine.reshape(-1).view(np.uint8))
    sizes = [track.count * len(FIELDS) * mine.itemsize for track in tracks]
    parts = (part.numpy().view(np.int64).reshape(-1, len(FIELDS)) for part in one_by_one(transport, buffer, sizes))
    if folder is not None:
        try:
            with folder.replacing(FILE) as raw, gzip.open(raw, "wt", compresslevel=6, encoding="utf-8") as file:
                file.writelines(text(network.topology, tracks, parts))
        except UserError as error:
            failure = str(error)
    for _ in parts:  # the others send, whatever becomes of it
        pass
    if failure := transport.broadcast_object(failure):
        raise UserError(failure)
    if folder is not None and (left_out := sum(track.left_out for track in tracks)):
        print(
            f"{FILE} holds the first {recorder.largest:,} spans of each rank: {left_out:,} later ones were left out",
            flush=True,
        )


def spans(recorder: Recorder, first: Reading, last: Reading) -> Times:
    """The spans of a rank by their start, outer ones before inner ones, shape ``(count, FIELDS)``, in rank 0's time."""
    values = np.array(recorder.values, dtype=np.int64).reshape(-1, len(FIELDS))
    values[:, STARTED : ENDED + 1] = aligned(values[:, STARTED : ENDED + 1], first, last)
    # They were kept as they ended: of two that start and end together the later one is the outer one.
    return values[np.lexsort((-np.arange(len(values)), -values[:, ENDED], values[:, STARTED]))]
