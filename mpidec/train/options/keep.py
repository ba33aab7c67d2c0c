"""What a run leaves behind, and what it goes on from."""

from __future__ import annotations

from dataclasses import dataclass

from mpidec.train.options.forms import Count, Name, Place


@dataclass(frozen=True)
class KeepOptions:
    """Results and checkpoints."""

    out: Place = None
    """folder of the results, new or empty; unset: runs/<time>-<algorithm>-<compressor>-<topology>-n<ranks>"""
    save_every: int = 0
    """epochs from one checkpoint to the next; 0: none"""
    save_every_steps: int = 0
    """steps from one checkpoint to the next; 0: none"""
    keep: int = 2
    """checkpoints that are kept, the newest ones"""
    stop_after: Count = None
    """epochs after which this start of the run ends, with a checkpoint to resume from; unset: all"""
    resume: Name = None
    """go on from the newest checkpoint: that of the run folder DIR, with its options; or auto, that of --out if any"""
    resume_as: Place = None
    """go on as a new run, with any ranks and options, from the averaged model of the run folder DIR"""
    tensorboard: bool = False
    """write the metrics for TensorBoard too"""
    trace: bool = False
    """write what every rank does and when, for Perfetto or chrome://tracing"""
