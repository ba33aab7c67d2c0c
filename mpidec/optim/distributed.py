"""The optimizer that users wrap around their own."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from mpidec.communicator import Network
from mpidec.errors import NonFiniteError, UserError
from mpidec.flat import FlatBuffer
from mpidec.optim.agreement import broadcast_model, refuse_different_models, refuse_different_rules
from mpidec.optim.base import Algorithm, Step
from mpidec.optim.checks import refuse_clip_norm, refuse_second_direction, unwise
from mpidec.optim.sgd import SGD
from mpidec.optim.state import refuse_other_state
from mpidec.topology import Topology
from mpidec.world import init


class DistributedOptimizer(torch.optim.Optimizer):
    """``local`` takes the local step of ``model``, ``algorithm`` decides what the ranks tell each other around it.

    ``param_groups`` and ``state`` are those of ``local``, so schedulers and the like work on this object. The trainable
    parameters become views of one flat tensor; move the model to its device first. At the wrap every rank takes rank
    0's parameters and buffers, unless ``broadcast`` is off.

    Args:
        local: any ``torch.optim.Optimizer`` over parameters of ``model``, except LBFGS.
        model: the model that this rank trains.
        algorithm: the rule, with its compressor.
        topology: a graph over all ranks or the name of its family, or a ``Network`` with one's own transport; a ring
            (for a central rule the complete graph) where none is given.
        seed: of the compressor's random draws; a ``Network`` brings its own.
        steps_per_epoch: what epochs are counted in, for rules and compressors that change with them.
        clip_norm: norm of the whole gradient above which it is scaled down just before the local step: the mean
            gradient under a rule that averages gradients, else this rank's own.

    Raises ``UserError`` for a model that cannot be flattened, or that differs among the ranks; for a ``local``
    optimizer with momentum or weight decay under a rule that owns them; and where epochs are needed and not counted.
    Warns, on rank 0, of a compressor that the algorithm is not analysed for.

    ``seconds`` adds up the time of ``local_step``, of the ``algorithm`` (with encoding), and of the ``exchange``
    itself.
    """

    # GradScaler then hands its findings over instead of leaving a step, and with it a round of communication, out.
    _step_supports_amp_scaling = True

    def __init__(
        self,
        local: torch.optim.Optimizer,
        model: nn.Module,
        algorithm: Algorithm,
        topology: Topology | Network | str | None = None,
        *,
        broadcast: bool = True,
        seed: int = 0,
        steps_per_epoch: int | None = None,
        clip_norm: float | None = None,
    ) -> None:
        if isinstance(local, DistributedOptimizer):
            raise UserError("this optimizer is distributed already: wrap the one inside it")
        if isinstance(local, torch.optim.LBFGS):
            raise UserError(
                "LBFGS evaluates its closure many times a step, which no algorithm here can follow: take another"
            )
        if steps_per_epoch is not None and steps_per_epoch < 1:
            raise UserError(f"steps_per_epoch is a number of steps, 1 or more: got {steps_per_epoch}")
        if algorithm.counts_epochs and steps_per_epoch is None:
            raise UserError(
                f"{type(algorithm).__name__} with {algorithm.compressor!r} changes with the epoch: give steps_per_epoch"
            )
        refuse_second_direction(local, algorithm)
        refuse_clip_norm(clip_norm, algorithm)
        # Claimed in one go: ranks that are threads may share an algorithm by mistake.
        if vars(algorithm).setdefault("_owner", self) is not self or algorithm.compressor.bound:
            raise UserError("this algorithm, or its compressor, already serves another optimizer: make one for each")
        self.local, self.algorithm, self.steps_per_epoch = local, algorithm, steps_per_epoch
        self.clip_norm = clip_norm
        # What unpickling calls: it lays the tables of hooks, and makes no param groups of its own.
        self.__setstate__({"defaults": local.defaults})
        self.comm = topology if isinstance(topology, Network) else _network(topology, algorithm, seed)
        self.flat = FlatBuffer(model, local.param_groups)
        if isinstance(local, SGD):
            local.lie_on(self.flat)
        refuse_different_rules(self.comm.transport, self.comm.topology, algorithm, steps_per_epoch)
        refuse_different_models(self.comm.transport, model, self.flat)
        if broadcast:
            broadcast_model(self.comm.transport, model, self.flat)
        self.steps = 0
        self.seconds = {"local_step": 0.0, "algorithm": 0.0, "exchange": 0.0}
        algorithm.compressor.bind(self.flat.sizes, self.comm.noise, self.comm.span if self.comm.recorder else None)
        if self.comm.rank == 0 and (reason := unwise(algorithm, local)):
            warnings.warn(reason, stacklevel=2)
        with torch.no_grad():
            algorithm.start(self.flat.data, self.comm)

    @property
    def param_groups(self) -> list[dict[str, Any]]:  # type: ignore[override]
        """Those of the local optimizer, also after it has loaded a state dict."""
        return self.local.param_groups

    @property
    def state(self) -> Any:  # type: ignore[override]
        """That of the local optimizer."""
        return self.local.state

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One local step and one round of communication; returns what ``closure``, evaluated once and first, returned.

        Raises ``NonFiniteError`` naming rank, step and parameter where a gradient is not finite.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        before = self.seconds["local_step"], self.comm.seconds_waiting
        self.comm.step = self.steps + 1  # not only from the algorithm on: what is agreed on before belongs to it too
        with self.comm.span("step") as span:
            self.flat.collect_data()
            used = self.flat.collect_grad()
            overflowed = self._unscale()
            if not overflowed:
                self._refuse_non_finite()
            if self.algorithm.synchronous:
                used, overflowed = self._agree(used, overflowed)
            self.flat.bind_grad(used)
            self.steps += 1
            self._run(used, overflowed)
        local, exchange = self.seconds["local_step"] - before[0], self.comm.seconds_waiting - before[1]
        self.seconds["exchange"] += exchange
        self.seconds["algorithm"] += span.seconds - local - exchange
        return loss

    def zero_grad(self, set_to_none: bool = True) -> None:
        """As the local optimizer does it."""
        self.local.zero_grad(set_to_none)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Refused with a ``UserError``: the flat layout is fixed, and equal on all ranks, from the wrap on."""
        raise UserError(
            "a param group cannot be added after the wrap: add it to the local optimizer first, then wrap that"
        )

    def state_dict(self) -> dict[str, Any]:
        """``local``: its state dict; ``algorithm``: its buffers by parameter name; ``steps``: taken so far.

        ``rule`` and ``shapes`` say what the state belongs to. Everything in it loads with ``weights_only``.
        """
        buffers = {
            name: self.flat.split(b) if b.shape == self.flat.data.shape else b.clone()
            for name, b in self.algorithm.named_buffers()
        }
        return {**self._identity(), "local": self.local.state_dict(), "algorithm": buffers, "steps": self.steps}

    @torch.no_grad()
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take up a state of the same algorithm over the same parameters.

        Raises ``UserError``, with nothing loaded yet, where the state is of another algorithm or of other parameters.
        """
        own = [name for name, _ in self.algorithm.named_buffers()]
        refuse_other_state(state_dict, **self._identity(), buffers=own)
        self.local.load_state_dict(state_dict["local"])
        for name, buffer in self.algorithm.named_buffers():
            saved = state_dict["algorithm"][name]
            if isinstance(saved, dict):
                self.flat.join(saved, buffer)
            else:
                buffer.copy_(saved)
        self.steps = state_dict["steps"]

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Refused with a ``UserError``: a copy could not be among the ranks."""
        raise UserError("a DistributedOptimizer cannot be copied or pickled: copy or save its state_dict()")

    def _identity(self) -> dict[str, Any]:
        """What a state must have been saved by, and for."""
        return {
            "rule": self.algorithm.kind,
            "shapes": {s.name: list(s.shape) for s in self.flat.segments},
        }

    def _run(self, used: Tensor, overflowed: bool) -> None:
        """The algorithm around the local step, which an overflow leaves out."""
        x, g, algorithm = self.flat.data, self.flat.grad, self.algorithm
        if overflowed and algorithm.synchronous:
            return  # on all ranks alike: nobody has a gradient to sum
        if overflowed:
            g.zero_()
        step = Step(self.steps, self.steps / self.steps_per_epoch if self.steps_per_epoch else 0.0)
        # What no rank has a gradient of neither moves nor enters a memory, from which nothing would move it.
        idle = ~used if algorithm.synchronous else torch.zeros_like(used)
        with self.flat.untouched(idle, [x, *(b for b in algorithm.buffers() if b.shape == x.shape)]):
            algorithm.run(x, g, self.comm, step, lambda: None if overflowed else self._local_step())

    def _local_step(self) -> None:
        with self.comm.span("local step") as span:
            if self.clip_norm is not None:
                # As torch.nn.utils.clip_grad_norm_ does it, small number included.
                norm = torch.linalg.vector_norm(self.flat.grad)
                self.flat.grad *= torch.clamp(self.clip_norm / (norm + 1e-6), max=1.0)
            self.local.step()
        self.seconds["local_step"] += span.seconds

    def _unscale(self) -> bool:
        """Apply what a GradScaler left here; returns whether it found an overflow, which forbids the local step."""
        # GradScaler sets both attributes before a step and deletes them after it.
        found_inf, scale = getattr(self, "found_inf", None), getattr(self, "grad_scale", None)
        if scale is not None:
            self.flat.grad /= scale
        return bool(found_inf)

    def _agree(self, used: Tensor, overflowed: bool) -> tuple[Tensor, bool]:
        """Which segments have a gradient on any rank, and whether any rank must leave its local step out."""
        flags = torch.cat([used, torch.tensor([overflowed])])
        self.comm.agree(flags)
        return flags[:-1], bool(flags[-1])

    def _refuse_non_finite(self) -> None:
        if torch.isfinite(self.flat.grad.sum(dtype=torch.promote_types(self.flat.grad.dtype, torch.float32))):
            return
        # The sum alone may overflow, so only the entries themselves convict.
        for segment in self.flat.segments:
            if not torch.isfinite(self.flat.grad[segment.place]).all():
                raise NonFiniteError(
                    f"rank {self.comm.rank}, step {self.steps + 1}: the gradient of parameter {segment.name!r} holds "
                    "NaN or infinity; lower the learning rate, or look at this rank's data"
                )


def _network(topology: Topology | str | None, algorithm: Algorithm, seed: int) -> Network:
    world = init()
    if topology is None:
        topology = "complete" if algorithm.central else "ring"
    if isinstance(topology, str):
        topology = Topology.named(topology, world.size)
    return Network(world.transport, topology, world.collectives() if algorithm.central else None, seed)
