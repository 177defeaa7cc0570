"""Formulas of papers, called with numbers for which they have no value, and with what is no number."""

import re

import numpy as np
import pytest

from simdist.asynchronous import best_local_steps, local_sgd_error
from simdist.asynchronous.federated import local_updates, uplink_bytes
from simdist.asynchronous.parameter_server import server_bytes, ssp_rate, ssp_regret
from simdist.errors import ArgumentError
from simdist.nn.formulas import kaplan_best, kaplan_loss, megatron_parameters
from simdist.nn.functional import capacity
from simdist.optim import critical_tokens, scaled_learning_rate, sgd_noise
from simdist.parallel.pipeline import zero_bubble_layer
from simdist.planning import amdahl_speedup, gustafson_speedup, mixed_tokens, tensor_parallel_ranks
from simdist.training.checkpoint import daly_interval_s, expected_s, goodput

TINY, HUGE, INF = 5e-324, 10**400, float("inf")


@pytest.mark.parametrize(
    ("formula", "numbers"),
    [
        (critical_tokens, (TINY,)),
        (critical_tokens, (1e308,)),
        (critical_tokens, (HUGE,)),
        (kaplan_best, (TINY,)),
        (kaplan_loss, (HUGE,)),
        (megatron_parameters, (1, 1e300, 1, 1)),
        (mixed_tokens, (4, float("inf"), 4, 4)),
        (tensor_parallel_ranks, (4, TINY, 4)),
        (goodput, (TINY, TINY, TINY)),
        (server_bytes, (HUGE, 4)),
        (capacity, (4, 4, float("inf"))),
    ],
)
def test_what_has_no_finite_value_is_refused_with_the_numbers(formula, numbers):
    first = re.escape(str(numbers[0])[:9])
    with pytest.raises(ArgumentError, match=rf"{formula.__name__}\(.*{first}.*\) has no finite value: "):
        formula(*numbers)


@pytest.mark.parametrize("wrong", ["3", None, [1], 1j, np.array([1, 2]), np.array(3), float("nan"), -1])
@pytest.mark.parametrize(
    ("formula", "name", "rest"),
    [
        (amdahl_speedup, "serial", {"ranks": 4}),
        (capacity, "factor", {"tokens": 4, "experts": 2}),
        (local_sgd_error, "steps", {"ranks": 4, "local_steps": 4, "learning_rate": 0.1, "excess": 1.0}),
        (local_updates, "samples", {"clients": 4, "epochs": 1}),
        (scaled_learning_rate, "learning_rate", {"global_batch_size": 32}),
        (server_bytes, "num_bytes", {"workers": 4}),
        (ssp_regret, "updates", {"workers": 4, "staleness": 1, "distance": 1, "slope": 1}),
        (uplink_bytes, "fraction", {"clients": 4, "rounds": 1, "num_bytes": 4}),
        (zero_bubble_layer, "width", {"heads": 4, "context": 4}),
    ],
)
def test_what_is_no_number_is_refused_by_its_name(formula, name, rest, wrong):
    with pytest.raises(ArgumentError, match=f"^{name} is "):
        formula(**rest, **{name: wrong})


@pytest.mark.parametrize(
    ("formula", "numbers"),
    [
        (daly_interval_s, {"checkpoint_s": 4, "failure_s": 100}),
        (ssp_rate, {"update": 100, "workers": 4, "staleness": 4, "distance": 4, "slope": 4}),
        (zero_bubble_layer, {"width": 100, "heads": 4, "context": 4}),
        (best_local_steps, {"seconds": 4, "average_s": 4, "learning_rate": 1, "excess": 100}),
    ],
)
def test_numbers_of_numpy_are_those_of_python(formula, numbers):
    """Of 8 bits: 2 * np.int8(100) is -56."""
    found = formula(**{name: np.int8(number) for name, number in numbers.items()})
    assert found == formula(**numbers)


@pytest.mark.parametrize(
    ("formula", "numbers"),
    [
        (sgd_noise, {"learning_rate": 0.1, "batch_size": INF, "samples": INF}),
        (gustafson_speedup, {"serial": 1.0, "ranks": INF}),
        (kaplan_loss, {"model": INF, "data": INF}),
        (expected_s, {"work_s": 1.0, "interval_s": INF, "checkpoint_s": 1.0, "failure_s": INF}),
    ],
)
def test_a_formula_gives_no_nan(formula, numbers):
    """Where infinity is divided by infinity, or taken 0 times."""
    with pytest.raises(ArgumentError, match=rf"{formula.__name__}\(.*inf.*\) has no finite value: it is nan"):
        formula(**numbers)
