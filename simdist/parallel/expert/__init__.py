"""Expert parallelism: a mixture of experts of which each rank has some."""

from simdist.parallel.expert.exchange import AllToAllExchange, check_experts
from simdist.parallel.expert.routes import Routed, routes

__all__ = ["AllToAllExchange", "Routed", "check_experts", "routes"]
