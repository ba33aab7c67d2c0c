"""All parameters of a model, and their gradients, as views of one contiguous tensor each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor, nn

from mpidec.errors import UserError


class Segment(NamedTuple):
    """One parameter in the flat vector: ``name``, its ``place``, its ``shape``, and the index of its param group."""

    name: str
    place: slice
    shape: torch.Size
    group: int


class FlatBuffer:
    """``data`` and ``grad``, shape ``(d,)``: every trainable parameter of a model in the order of its names.

    The parameters become views of ``data``, so a rule that works on the flat vector works on the model. A parameter
    that is shared by two modules stands there once. ``groups`` are an optimizer's param groups: only their parameters
    are taken; without them all that require a gradient are. ``parameters`` and ``grad_views`` stand in the order of the
    ``segments``.

    Raises ``UserError``, with the parameter's name, for what one flat vector cannot hold: a second dtype or device,
    values that are no floating-point numbers, or an uninitialised or overlapping (expanded) tensor.
    """

    def __init__(self, model: nn.Module, groups: Iterable[dict[str, list[nn.Parameter]]] | None = None) -> None:
        named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
        if groups is None:
            membership = {p: 0 for _, p in named}
        else:
            membership = {p: index for index, group in enumerate(groups) for p in group["params"]}
            _refuse_strangers(membership, dict(model.named_parameters()))
        named = [(name, p) for name, p in named if p in membership]
        _refuse_unfit(named)
        self.parameters = [p for _, p in named]
        self.segments: list[Segment] = []
        start = 0
        for name, p in named:
            self.segments.append(Segment(name, slice(start, start + p.numel()), p.shape, membership[p]))
            start += p.numel()
        like = self.parameters[0]
        self.data = torch.empty(start, dtype=like.dtype, device=like.device)
        self.grad = torch.zeros_like(self.data)
        self._data_views = self.views(self.data)
        self.grad_views = self.views(self.grad)
        with torch.no_grad():
            self._adopt_data(range(len(self.segments)))

    @property
    def sizes(self) -> list[int]:
        """Entries of each segment."""
        return [p.numel() for p in self.parameters]

    def views(self, flat: Tensor) -> list[Tensor]:
        """``flat``, shape ``(d,)``, as one view for each segment in the segment's shape."""
        return [flat[s.place].view(s.shape) for s in self.segments]

    def split(self, flat: Tensor) -> dict[str, Tensor]:
        """``flat`` by parameter name: the form that a state dict keeps, independent of the flat layout."""
        return {s.name: view.clone() for s, view in zip(self.segments, self.views(flat), strict=True)}

    def join(self, named: dict[str, Tensor], flat: Tensor) -> None:
        """The inverse of ``split``, into ``flat``. Raises ``KeyError`` for a missing name."""
        for s, view in zip(self.segments, self.views(flat), strict=True):
            view.copy_(named[s.name])

    def collect_data(self) -> None:
        """Copy in and bind again the parameters whose storage somebody replaced (``p.data = ...``).

        Raises ``UserError`` where a parameter has moved to another dtype or device meanwhile.
        """
        # is_set_to does not see a new dtype over the same bytes, which .to() cannot produce.
        pairs = zip(self.parameters, self._data_views, strict=True)
        strayed = [i for i, (p, view) in enumerate(pairs) if not p.is_set_to(view)]
        for i in strayed:
            if (p := self.parameters[i]).dtype != self.data.dtype or p.device != self.data.device:
                raise UserError(
                    f"parameter {self.segments[i].name!r} has moved to {p.dtype} on {p.device} after it was wrapped as "
                    f"{self.data.dtype} on {self.data.device}: move the model first, then wrap it"
                )
        self._adopt_data(strayed)

    def collect_grad(self) -> Tensor:
        """Bring all gradients into ``grad``; missing ones count as zero.

        Returns which segments have a gradient: bool, shape ``(segments,)``, on the CPU.
        """
        unused, into, fresh = [], [], []
        for i, (p, view) in enumerate(zip(self.parameters, self.grad_views, strict=True)):
            grad = p.grad
            if grad is view:
                continue
            if grad is None:
                unused.append(i)
                view.zero_()
            elif grad.is_sparse:
                view.copy_(grad.to_dense())
            elif not grad.is_set_to(view):
                into.append(view)
                fresh.append(grad)
        if into:
            torch._foreach_copy_(into, fresh)  # one call for all: most of the time of small copies is their calls
        used = torch.ones(len(self.segments), dtype=torch.bool)
        if unused:
            used[unused] = False
        return used

    def bind_grad(self, used: Tensor) -> None:
        """Let the parameters of the ``used`` segments show their part of ``grad`` and the others show none."""
        for p, view, shown in zip(self.parameters, self.grad_views, used.tolist(), strict=True):
            p.grad = view if shown else None

    @contextmanager
    def untouched(self, segments: Tensor, flats: Iterable[Tensor]) -> Iterator[None]:
        """Give the marked ``segments`` (bool, shape ``(segments,)``) of all ``flats`` back the values of before."""
        places = [s.place for s, marked in zip(self.segments, segments.tolist(), strict=True) if marked]
        kept = [(flat[place], flat[place].clone()) for flat in flats for place in places]
        yield
        for view, before in kept:
            view.copy_(before)

    def _adopt_data(self, indices: Iterable[int]) -> None:
        for i in indices:
            self._data_views[i].copy_(self.parameters[i].data)
            self.parameters[i].data = self._data_views[i]


def _refuse_strangers(membership: dict[nn.Parameter, int], named: dict[str, nn.Parameter]) -> None:
    known = set(named.values())
    for p, group in membership.items():
        if p not in known:
            raise UserError(
                f"the optimizer's param group {group} holds a parameter of shape {tuple(p.shape)} that is not "
                "the model's: make the optimizer from the parameters of the model that is wrapped with it"
            )


def _refuse_unfit(named: list[tuple[str, nn.Parameter]]) -> None:
    if not named:
        raise UserError("the model has no trainable parameter in the optimizer: nothing would be trained or sent")
    first_name, first = named[0]
    for name, p in named:
        if isinstance(p, nn.parameter.UninitializedParameter):
            raise UserError(f"parameter {name!r} has no shape yet: run one batch through the model, then wrap it")
        if any(stride == 0 and size > 1 for stride, size in zip(p.stride(), p.shape, strict=True)):
            raise UserError(
                f"parameter {name!r} is expanded, so that entries share memory: make it a tensor of its own"
            )
        if not p.dtype.is_floating_point:
            raise UserError(f"parameter {name!r} is {p.dtype}: only floating-point parameters can be averaged")
        if (p.dtype, p.device) != (first.dtype, first.device):
            raise UserError(
                f"parameter {name!r} is {p.dtype} on {p.device}, but {first_name!r} is {first.dtype} on "
                f"{first.device}: one dtype and one device for all is needed"
            )
