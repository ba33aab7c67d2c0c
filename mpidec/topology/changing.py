"""The families of graphs that change from step to step, so that each rank has one peer at a time."""

from __future__ import annotations

from mpidec.topology.mixing import Topology
from mpidec.topology.weights import Row, metropolis_hastings


def one_peer_exponential(size: int) -> Topology:
    """In step ``t`` rank ``i`` averages half and half with rank ``i + 2 ** ((t - 1) % tau)``, ``tau = ceil(log2 n)``.

    Directed, doubly stochastic; one message per rank and step, and exact consensus after ``tau`` steps where ``n`` is
    a power of two (Ying, Yuan, Chen, Hu, Pan and Yin 2021, arXiv 2110.13363).
    """
    if size == 1:
        return Topology("alone", (((0, 1.0),),))
    distances = [2**power for power in range((size - 1).bit_length())]
    return Topology.cycle(Topology(f"rank + {distance}", _half_and_half(size, distance)) for distance in distances)


def _half_and_half(size: int, distance: int) -> tuple[Row, ...]:
    return tuple(tuple((peer, 0.5) for peer in sorted((rank, (rank + distance) % size))) for rank in range(size))


def matching_ring(size: int) -> Topology:
    """The ring, of which each step takes every other edge, and both ends of an edge average half and half.

    First the edges from even ranks to the next, then those from odd ranks; the last edge of an odd ring, which would
    meet both, has a step of its own. Symmetric; at most one message per rank and step. (Wang, Sahu, Yang, Joshi
    and Kar 2019, arXiv 1905.09435, take a graph apart into matchings and draw among them; here they come in turn.)
    """
    edges = [(rank, (rank + 1) % size) for rank in range(size)]
    last = [edges.pop()] if size % 2 else []
    phases = {"even edges": edges[::2], "odd edges": edges[1::2] if size > 2 else [], "last edge": last}
    matchings = (Topology(name, metropolis_hastings(size, some)) for name, some in phases.items() if some)
    return Topology.cycle(matchings)
