"""Hours, energy and emissions of runs, as their papers add them up."""

import pytest

from simdist.errors import ArgumentError
from simdist.planning import carbon_kg, device_hours, energy_kwh

MILLION = 1e6


@pytest.mark.parametrize(
    ("flops", "reached", "chips", "days", "watts", "pue", "kg_per_kwh", "mwh", "tonnes"),
    [
        (2.91e21, 24.8e12, 200, 6.8, 208, 1.10, 0.431, 7.5, 3.2),  # Evolved Transformer's search
        (4.05e22, 45.6e12, 512, 20, 310, 1.12, 0.545, 85.7, 46.7),  # T5
        (1.12e23, 42.3e12, 1024, 30, 289, 1.09, 0.415, 232, 96.4),  # Meena
        (1.33e22, 48.0e12, 1024, 3.1, 288, 1.09, 0.177, 24.1, 4.3),  # GShard-600B
        (8.22e22, 34.4e12, 1024, 27, 245, 1.10, 0.330, 179, 59.1),  # Switch Transformer
        (3.14e23, 24.6e12, 10_000, 14.8, 330, 1.10, 0.429, 1287, 552.1),  # GPT-3
    ],
)
def test_the_table_of_patterson_et_al(flops, reached, chips, days, watts, pue, kg_per_kwh, mwh, tonnes):
    """Table 4 of arXiv 2104.10350; net emissions."""
    hours = device_hours(flops, reached)
    assert hours / chips / 24 == pytest.approx(days, rel=0.015)
    kwh = energy_kwh(hours, watts, pue)
    assert kwh / 1000 == pytest.approx(mwh, rel=0.006)
    assert carbon_kg(kwh, kg_per_kwh) / 1000 == pytest.approx(tonnes, rel=0.015)


@pytest.mark.parametrize(
    ("hours", "mwh", "tonnes"),
    [
        (809_472, 356, 137),  # OPT-175B
        (1_082_880, 475, 183),  # BLOOM-175B
        (82_432, 36, 14),  # LLaMA of 7, 13, 33 and 65B
        (135_168, 59, 23),
        (530_432, 233, 90),
        (1_022_362, 449, 173),
    ],
)
def test_the_table_of_llama(hours, mwh, tonnes):
    """Table 15 of arXiv 2302.13971: A100s of 400 W, a PUE of 1.1 and 0.385 kg."""
    kwh = energy_kwh(hours, 400, 1.1)
    assert round(kwh / 1000) in (mwh, mwh + 1)  # BLOOM's 476.5 is 475 there
    assert carbon_kg(kwh, 0.385) / 1000 == pytest.approx(tonnes, abs=0.51)


def test_the_hours_of_deepseek_v3():
    """180 thousand for a trillion tokens: 3.7 days on 2048 H800s; all 2.788 million at two dollars 5.576 million."""
    flops_per_s = device_hours(6 * 37e9 * 1e12, 1.0) / 180e3  # the rate that each must have reached
    assert device_hours(6 * 37e9 * 14.8e12, flops_per_s) == pytest.approx(2.664 * MILLION)
    assert pytest.approx(3.7, abs=0.05) == 180e3 / 2048 / 24
    assert flops_per_s == pytest.approx(343e12, rel=0.01)  # 35% of 989


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda: device_hours(1, 0), "flops_per_s is 0; needs more than 0"),
        (lambda: energy_kwh(1, 400, 0.9), "pue is 0.9; needs at least 1"),
        (lambda: carbon_kg(-1, 0.4), "energy_kwh is -1; needs at least 0"),
    ],
)
def test_numbers_that_mean_nothing(made, message):
    with pytest.raises(ArgumentError, match=message):
        made()
