"""Data sets by name. ``load`` is the same for all of them: rank 0 reads, and the others get what it has read."""

from __future__ import annotations

from pkgutil import resolve_name

from mpidec.errors import UserError
from mpidec.train.data.checks import checked
from mpidec.train.data.dataset import Dataset
from mpidec.train.data.share import Outline, received, sent
from mpidec.train.data.source import Source
from mpidec.train.names import DATA, SCHEMES
from mpidec.transport.base import Transport


def load(source: Source, transport: Transport) -> Dataset:
    """The data set, on the CPU; a collective call.

    Rank 0 reads, or downloads, what fits into memory and sends it to the others, which need neither the files nor the
    library. What is loaded batch by batch is opened by each rank. Raises ``UserError`` on every rank for what cannot
    be read or learnt from.
    """
    found: Dataset | None = None
    told: Outline | str | None = None
    mistake: UserError | None = None
    if transport.rank == 0:
        try:
            found = _opened(source)
            told = Outline.of(found)
        except UserError as error:
            mistake, told = error, str(error)
    told = transport.broadcast_object(told)
    if mistake is not None:
        raise mistake  # with its cause, in the user's own code perhaps
    if isinstance(told, str):
        raise UserError(told)
    assert told is not None, "rank 0 has found a data set, or said why not"
    if told.tensors is not None:
        return received(told, transport) if found is None else sent(found, transport)
    if found is None:
        found = _opened(source)
        told.refuse_other(found, source.name, transport.rank)
    return found


def _opened(source: Source) -> Dataset:
    place = SCHEMES[source.scheme] if source.scheme else DATA.get(source.name, "mpidec.train.data.factory:load")
    dataset: Dataset = resolve_name(place)(source)
    return checked(dataset, source.name)
