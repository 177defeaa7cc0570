"""Expert parallelism: the experts of a mixture are split over ranks."""

from simdist.parallel.expert.exchange import AllToAllExchange, check_experts, exchange_elements
from simdist.parallel.expert.routes import Routed, routes

__all__ = ["AllToAllExchange", "Routed", "check_experts", "exchange_elements", "routes"]
