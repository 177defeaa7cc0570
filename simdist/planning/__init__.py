"""Planning: the best ways to train a model on a cluster, from steps composed of the costs of their parts.

And formulas that need no plan: `speedup` (Amdahl and others), `roofline` (what hides messages) and `energy`.
"""

from simdist.planning.energy import carbon_kg, device_hours, energy_kwh
from simdist.planning.execution import Execution, execute
from simdist.planning.fitting import fitted_efficiency
from simdist.planning.job import Job
from simdist.planning.roofline import (
    data_parallel_tokens,
    expert_parallel_width,
    mixed_replicas,
    mixed_tokens,
    pipeline_weights,
    tensor_parallel_ranks,
)
from simdist.planning.search import Plan, Plans, planned, search
from simdist.planning.space import SCHEDULES, ways
from simdist.planning.speedup import (
    amdahl_speedup,
    gustafson_speedup,
    isoefficient_work,
    karp_flatt_share,
    sun_ni_speedup,
    universal_ranks,
    universal_speedup,
)
from simdist.planning.step import Step, computing_s
from simdist.planning.text import details, fit_text, headline, mesh_text, overview, run_text, table, zero_text
from simdist.planning.workbench import Workbench

__all__ = [
    "SCHEDULES",
    "Execution",
    "Job",
    "Plan",
    "Plans",
    "Step",
    "Workbench",
    "amdahl_speedup",
    "carbon_kg",
    "computing_s",
    "data_parallel_tokens",
    "details",
    "device_hours",
    "energy_kwh",
    "execute",
    "expert_parallel_width",
    "fit_text",
    "fitted_efficiency",
    "gustafson_speedup",
    "headline",
    "isoefficient_work",
    "karp_flatt_share",
    "mesh_text",
    "mixed_replicas",
    "mixed_tokens",
    "overview",
    "pipeline_weights",
    "planned",
    "run_text",
    "search",
    "sun_ni_speedup",
    "table",
    "tensor_parallel_ranks",
    "universal_ranks",
    "universal_speedup",
    "ways",
    "zero_text",
]
