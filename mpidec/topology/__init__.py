"""Who listens to whom, and with which weight. Knows no rank of its own, no MPI and no torch.

``python -m mpidec.topology ring 16`` shows a graph, its weights and how fast it mixes.
"""

from mpidec.topology.families import FAMILIES, known
from mpidec.topology.mixing import Topology

__all__ = ["FAMILIES", "Topology", "known"]
