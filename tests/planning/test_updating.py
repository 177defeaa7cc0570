"""What an update takes: by the number of weights, and found once for all runs that share it."""

import pytest

from simdist.planning import Job, Workbench
from simdist.planning.updating import updating
from simdist.training import Config

GPT = {"model": "gpt", "layers": 2, "width": 64, "heads": 4, "context_bytes": 32, "global_batch_size": 8}


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_adam_keeps_two_numbers_for_each_weight_of_a_rank(zero):
    """Rajbhandari et al. 2020, arXiv 1910.02054, section 3.1: each of N ranks has an N-th of them."""
    bench = Workbench("h100", ranks=4)
    jobs = [Job(Config(**GPT, device="phantom", zero=zero, micro_batches=m), bench) for m in (1, 2)]
    took = [updating(job, job.parts[0]) for job in jobs]
    weights = jobs[0].parts[0].size
    least = weights / 4 if zero else weights
    assert 2 * 4 * least <= took[0].state_bytes <= 2 * 4 * least * 1.01  # with padding
    assert took[0] is took[1], "found once for both"
