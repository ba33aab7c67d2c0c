"""What is learnt: data, model, and how the samples are dealt to the ranks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from mpidec.train.names import DATA, MODELS
from mpidec.train.options.forms import Count, Place, one_of


@dataclass(frozen=True)
class WorkOptions:
    """The task."""

    data: Annotated[str, one_of([*DATA, "libsvm:FILE", "text:FILE", "package.module:factory"])] = "digits"
    data_dir: Place = None
    """folder of the files of a data set; unset: data"""
    download: bool = False
    """let rank 0 fetch a data set that is not in --data-dir yet"""
    image_size: Count = None
    """imagefolder: pixels of a side; unset: 64"""
    sequence_length: Count = None
    """text: bytes of a sample; unset: 64"""
    workers: int = 0
    """processes on each rank that read samples from files; 0: the rank reads them itself"""
    augment: bool = False
    """shift and mirror the images that are learnt from at random, as usual for CIFAR"""
    model: Annotated[str, one_of([*MODELS, "a classifier of torchvision", "package.module:factory"])] = "mlp"
    partition: str = "iid"
    """how samples are dealt to the ranks: iid, anew in each epoch; fixed, once; sorted by label; dirichlet:ALPHA, the
    more uneven in labels the smaller ALPHA"""
    dtype: str = "float32"
    """of parameters, samples and messages: float32 or float64"""
