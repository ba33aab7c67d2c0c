"""What ranks tell each other: algorithm, compressor and topology, with the options of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from mpidec import compress, optim, topology
from mpidec.train.options.forms import Count, Gamma, Name, Number, Truth, one_of


@dataclass(frozen=True)
class RuleOptions:
    """How a rule is chosen and set."""

    algorithm: Annotated[str, one_of(optim.known())] = "choco"
    compressor: Annotated[str | None, one_of(compress.known(), "; unset: the algorithm's own choice")] = None
    topology: Annotated[str, one_of(topology.known(), "; algorithms that need all ranks take no graph")] = "ring"
    gamma: Gamma = None
    """choco, deepsqueeze, naive: consensus step size in (0, 1], or auto (not for naive), which searches it on the
    consensus problem; unset: 0.3, but at most the ratio of random-k, and of top-k under deepsqueeze"""
    resync: Count = None
    """choco: steps after which the sum of the neighbours' copies is formed anew, against round-off; unset: 0, never"""
    order: Name = None
    """dpsgd: adapt-then-combine or combine-then-adapt; unset: adapt-then-combine"""
    period: Count = None
    """local, local-sign, local-ef-sign: steps from one synchronisation to the next; unset: 5"""
    start_epoch: Number = None
    """local, local-sign, local-ef-sign: epoch at which local steps begin, every step synchronises before; unset: 0"""
    product: Name = None
    """local-sign, local-ef-sign: separate averages signs and scales apart, exact their products; unset: separate"""
    direction: Name = None
    """local-ef-sign: signum, 1 bit an entry, or int8; unset: signum"""
    vote: Name = None
    """sign: majority or mean; unset: majority"""
    residual: Name = None
    """ef-sign: what is remembered, in units of the parameters or of the direction; unset: parameters"""
    clip: Number = None
    """dgc: norm that no tensor of a rank's gradient exceeds, times the root of the ranks; unset: no limit"""
    mask_momentum: Truth = None
    """dgc: True takes the momentum of entries that were sent back to 0; unset: True"""
    ratio: Number = None
    """top-k, random-k: fraction of the entries kept, in (0, 1]; unset: 0.01"""
    warmup_epochs: Number = None
    """top-k, random-k: epochs over which the fraction falls from 0.25 to the ratio, in steps of a quarter; unset: 0"""
    bits: Count = None
    """qsgd: bits of a level, 1 to 8; unset: 8"""
    contraction: Truth = None
    """qsgd, random-k: True scales to a contraction, False is unbiased; unset: what the algorithm is analysed for"""
    algorithm_options: Name = None
    """of an algorithm of another package: NAME=VALUE, several separated by commas"""
    compressor_options: Name = None
    """of a compressor of another package: NAME=VALUE, several separated by commas"""
    collectives: str = "auto"
    """what algorithms that need all ranks sum with: horovod, mpi or auto, which is Horovod where every rank has it"""
