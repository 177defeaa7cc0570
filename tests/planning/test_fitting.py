"""The efficiency that a measured step tells is the one with which the step is predicted."""

from dataclasses import replace

import pytest

from simdist.cluster import preset
from simdist.errors import ArgumentError
from simdist.planning import Workbench, fitted_efficiency, planned
from simdist.training import Config

H100 = preset("h100")
LARGE = {"model": "gpt2-large", "precision": "bf16", "flash_attention": True, "global_batch_size": 32}


def step_s(config, share):
    device = replace(H100.device, flops_efficiency=share)
    return planned(config, Workbench(H100.with_(device=device), 4)).step.seconds


@pytest.mark.parametrize("axes", [{}, {"zero": 3}, {"tp": 4}, {"pp": 4, "schedule": "zb-h1", "micro_batches": 8}])
@pytest.mark.parametrize("share", [1.0, 0.5, 0.02])
def test_it_is_found_again(axes, share):
    config = Config(**LARGE, **axes, vocabulary=50304, device="phantom")
    found = fitted_efficiency(config, H100, 4, step_s(config, share))
    assert found == pytest.approx(share, rel=3e-3)
    assert step_s(config, found) == pytest.approx(step_s(config, share), rel=1e-3)


def test_what_the_cluster_had_does_not_matter():
    config = Config(**LARGE, device="phantom")
    slow = H100.with_(device=replace(H100.device, flops_efficiency=0.1))
    assert fitted_efficiency(config, slow, 4, 1.0) == fitted_efficiency(config, H100, 4, 1.0)


@pytest.mark.parametrize(
    ("measured_s", "message"),
    [
        (0.001, r"measured_s is 0\.001; needs at least 0\.\d+, of devices at their peak"),
        (0.0, "measured_s is 0.0; needs more than 0"),
        (float("nan"), "measured_s is nan; needs more than 0"),
    ],
)
def test_what_no_device_takes_is_refused(measured_s, message):
    with pytest.raises(ArgumentError, match=message):
        fitted_efficiency(Config(**LARGE, device="phantom"), H100, 4, measured_s)
