"""How ranks reach each other: one protocol, two worlds."""

from simdist.comm.communicator import ANY, Communicator, Request, Status, Stream, Work

__all__ = ["ANY", "Communicator", "Request", "Status", "Stream", "Work"]
