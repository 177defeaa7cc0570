"""What is no trace by name is refused by every picture of several."""

import pytest

import simdist as sd
from simdist.errors import ArgumentError
from simdist.parallel.pipeline import schedule, simulate
from simdist.plots import attention_work, consensus, pipeline_schedule, waiting


@pytest.mark.parametrize("picture", [attention_work, consensus, pipeline_schedule, waiting])
def test_only_traces_by_name_are_drawn(picture):
    run, simulated = sd.run(lambda comm: None, 2), simulate(schedule("gpipe", stages=2, micro_batches=2))
    for runs in (run.trace, run, simulated, {"mine": simulated}, {"mine": simulated.trace}, {"mine": run}):
        with pytest.raises(ArgumentError, match=r"needs traces by name, such as {'mine': run.trace}, or .*\.trace\(\)"):
            picture(runs)
