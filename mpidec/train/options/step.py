"""How a rank steps: batches, local optimizer, learning-rate schedule and precision."""

from __future__ import annotations

from dataclasses import dataclass

from mpidec.train.options.forms import Name, Number

SCHEDULES = ("constant", "multistep", "cosine", "onecycle")
SCALINGS = ("none", "ranks", "degree")
DECAYS = ("all", "weights")
PRECISIONS = ("none", "bf16", "fp16")
STATISTICS = ("average", "local", "recompute")
CHOICES = {
    "schedule": SCHEDULES,
    "scale_lr": SCALINGS,
    "decay": DECAYS,
    "amp": PRECISIONS,
    "batch_norm": STATISTICS,
}
# Those that have the same form in every torch; others of torch.optim are known by name too.
OPTIMIZERS = ("SGD", "Adam", "AdamW", "Adagrad", "Adadelta", "Adamax", "NAdam", "RAdam", "RMSprop", "Rprop", "ASGD")
MOMENTUM = 0.9  # of SGD, and of rules that own the momentum
GENTLE = 0.001  # learning rate of all optimizers but SGD and Signum
MILESTONES = "0.5,0.75"  # He et al. 2015, arXiv 1512.03385


@dataclass(frozen=True)
class StepOptions:
    """The local step and what leads to it."""

    epochs: int = 30
    """passes over the data"""
    batch_size: int = 8
    """samples per rank of one forward and backward pass"""
    accumulate: int = 1
    """passes over batches of --batch-size before each step, which takes their mean gradient, as of one large batch"""
    optimizer: Name = None
    """local step: any optimizer of torch.optim by name; unset: SGD, and Signum for local-sign"""
    optimizer_options: Name = None
    """of the optimizer: NAME=VALUE, several separated by commas, such as betas=(0.9,0.95),eps=1e-6"""
    lr: Number = None
    """learning rate of the local step; unset: 0.1 for SGD, 0.003 for sign and local-sign, else 0.001"""
    momentum: Number = None
    """of the local step; 0: none; unset: 0.9 for SGD and for rules that own the momentum"""
    nesterov: bool = True
    """Nesterov's form of the momentum, where there is any"""
    weight_decay: Number = None
    """factor of the parameters that is added to the gradient, or taken off as the optimizer does it; unset: 0.0001, or
    0 for an optimizer without it"""
    decay: str = "all"
    """what --weight-decay is for: all parameters, or weights, which spares normalisation layers, told by their type,
    and of the others what has fewer than two dimensions, biases"""
    clip_norm: Number = None
    """norm to which a larger gradient is scaled down just before the local step: under allreduce the mean gradient,
    else each rank's own; unset: no limit"""
    schedule: str = "constant"
    """of the learning rate: constant, multistep, cosine (down to 0) or onecycle (up, then down)"""
    milestones: Name = None
    """multistep: where the rate falls, as fractions of the run; unset: 0.5,0.75"""
    lr_factor: Number = None
    """multistep: what the rate is multiplied by at each; unset: 0.1"""
    lr_warmup: float = 0.0
    """epochs over which the learning rate rises to its value: from the unscaled one under --scale-lr, else from a
    tenth"""
    scale_lr: str = "none"
    """none, ranks or degree: multiply the rate by their number, or by that of a rank's neighbours and itself"""
    amp: str = "none"
    """automatic mixed precision of forward and backward pass: none, bf16, or fp16 with a scaler alike on all ranks"""
    compile: bool = False
    """compile forward and backward pass with torch.compile"""
    batch_norm: str = "average"
    """statistics of BatchNorm in the averaged model: average those of the ranks, local takes each rank's own, recompute
    forms them anew on training samples"""
    seed: int = 0
    """of the initial parameters, the order of the samples and the compressor's draws"""
    device: str = "auto"
    """cpu, cuda or cuda:N; auto: the GPU of the local rank where there is one"""
