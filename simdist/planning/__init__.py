"""Planning: which way to train a model suits a cluster, found by putting steps together from what their parts take."""

from simdist.planning.bench import Bench
from simdist.planning.execution import Execution, execute
from simdist.planning.search import Plan, Plans, planned, search
from simdist.planning.space import SCHEDULES, ways
from simdist.planning.step import Step
from simdist.planning.told import details, headline, overview

__all__ = [
    "SCHEDULES",
    "Bench",
    "Execution",
    "Plan",
    "Plans",
    "Step",
    "details",
    "execute",
    "headline",
    "overview",
    "planned",
    "search",
    "ways",
]
