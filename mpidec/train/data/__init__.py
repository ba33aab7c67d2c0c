"""Data sets by name. ``load`` is the same for all of them: rank 0 reads, and the others get what it has read."""

from __future__ import annotations

from pkgutil import resolve_name

from mpidec.optim.agreement import by_rank_0
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

    def outline() -> Outline:
        nonlocal found
        found = _opened(source)
        return Outline.of(found)

    told = by_rank_0(transport, outline)
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
