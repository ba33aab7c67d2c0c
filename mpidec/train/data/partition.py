"""Which samples belong to which rank: dealt anew in each epoch, or once and for all by their labels."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from mpidec.train.names import Partition

Indices = npt.NDArray[np.int64]


def parts(labels: Indices, ranks: int, partition: Partition, seed: int, epoch: int) -> list[Indices]:
    """The samples of every rank in ``epoch``: each belongs to one, and the ranks' numbers differ by one at most.

    ``labels``: int64 of shape ``(samples,)``, or float targets to sort by. ``iid`` shuffles in each epoch, ``fixed``
    once. ``sorted`` gives each rank a stretch of the samples in the order of their labels: a class or two each, where
    there are as many ranks as classes. ``dirichlet`` draws for each rank how its samples divide among the classes (Hsu,
    Qi and Brown 2019, arXiv 1909.06335).
    """
    if partition.kind in ("iid", "fixed"):
        order = np.random.default_rng((seed, epoch if partition.kind == "iid" else 0)).permutation(len(labels))
        return [order[rank::ranks] for rank in range(ranks)]
    if partition.kind == "sorted":
        return np.array_split(np.argsort(labels, kind="stable"), ranks)
    assert partition.alpha is not None, "a Dirichlet distribution has its alpha"
    return _dirichlet(labels, ranks, partition.alpha, np.random.default_rng((seed, 0)))


def _dirichlet(labels: Indices, ranks: int, alpha: float, random: np.random.Generator) -> list[Indices]:
    """Each rank in turn takes its share of classes from what the earlier ones have left.

    The draws are from Dirichlet(alpha * K * p), with K classes and p their shares in the whole, where the paper has
    alpha * p: so ``alpha`` is the usual one of each class, and means the same for any K.
    """
    pools = [random.permutation(np.flatnonzero(labels == label)) for label in np.unique(labels)]
    prior = np.array([len(pool) for pool in pools]) / len(labels)
    taken: list[Indices] = []
    for size in (len(share) for share in np.array_split(labels, ranks)):
        wanted = random.dirichlet(alpha * len(pools) * prior)
        mine: list[Indices] = []
        while missing := size - sum(map(len, mine)):
            left = np.array([len(pool) for pool in pools])
            # Among what is left, so that a large alpha deals every rank the mixture of the whole.
            shares = wanted / prior * left
            # Of the classes that it wants, nothing is left: any other will do.
            shares = shares / shares.sum() if shares.sum() > 0 else left / left.sum()
            counts = np.minimum(random.multinomial(missing, shares), left)
            mine += [pool[:count] for pool, count in zip(pools, counts, strict=True)]
            pools = [pool[count:] for pool, count in zip(pools, counts, strict=True)]
        taken.append(np.concatenate(mine))
    return taken


def label_histogram(labels: Indices, parts: list[Indices], classes: int) -> npt.NDArray[np.int64]:
    """How many samples of each class each rank has: shape ``(ranks, classes)``, from what ``parts`` returned.

    ``labels``: int64 of shape ``(samples,)``, in 0 .. classes - 1.
    """
    return np.stack([np.bincount(labels[mine], minlength=classes) for mine in parts])
