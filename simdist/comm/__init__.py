"""How ranks reach each other: one protocol, two worlds."""

from simdist.comm.communicator import ANY, Communicator, Request, Status, Stream, Work
from simdist.comm.mesh import AXES, Mesh

__all__ = ["ANY", "AXES", "Communicator", "Mesh", "Request", "Status", "Stream", "Work"]
