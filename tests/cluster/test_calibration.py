import pytest

from simdist.cluster import Link
from simdist.cluster.calibration import calibrated, fit_link
from simdist.errors import ArgumentError

SIZES = (0, 64, 1024, 16384, 262144, 4194304)


def test_finds_alpha_and_beta_again():
    wire = Link(3e-6, 7e9)
    found = fit_link([(n, wire.seconds(n)) for n in SIZES])
    assert found.latency_s == pytest.approx(3e-6)
    assert found.bytes_per_s == pytest.approx(7e9)


def test_noise_on_long_messages_leaves_alpha_alone():
    wire = Link(3e-6, 7e9)
    found = fit_link([(n, wire.seconds(n) * (1.3 if n > 1e6 else 1.0)) for n in SIZES])
    assert found.latency_s == pytest.approx(3e-6, rel=0.2)


@pytest.mark.parametrize("odd", SIZES)
@pytest.mark.parametrize("factor", [0.5, 50])
def test_one_message_that_met_other_work_changes_nothing(odd, factor):
    wire = Link(3e-6, 7e9)
    found = fit_link([(n, wire.seconds(n) * (factor if n == odd else 1)) for n in SIZES])
    assert (found.latency_s, found.bytes_per_s) == pytest.approx((3e-6, 7e9))


def test_memory_beyond_the_caches_is_not_thought_to_be_as_fast_as_they_are():
    seconds = {256: 0.8e-6, 32768: 1.5e-6, 6515712: 1.86e-3}  # measured: 22 GB/s, then 3.5
    found = fit_link(seconds.items())
    assert max(found.seconds(n) / s for n, s in seconds.items()) < 8
    assert min(found.seconds(n) / s for n, s in seconds.items()) > 1 / 8


def test_alpha_and_beta_are_never_negative():
    shrinking = fit_link([(0, 2e-6), (1024, 1e-6)])
    assert shrinking.bytes_per_s > 0
    steep = fit_link([(10, 1e-9), (1024, 1e-3)])
    assert steep.latency_s > 0


def test_gamma_becomes_the_rate_of_memory():
    cluster = calibrated([(n, Link(2e-6, 5e9).seconds(n)) for n in SIZES], [(n, 1e-6 + n / 4e9) for n in SIZES])
    assert cluster.name == "this-machine (measured)"
    assert cluster.device.reduced_bytes_per_s == pytest.approx(4e9)
    assert cluster.inside == cluster.between


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        ([(8, 1.0), (8, 2.0)], r"at least two sizes; got \[8\]"),
        ([], "at least two sizes"),
        ([(0, 0.0), (8, 1.0)], "took 0.0 s"),
        ([(0, float("nan")), (8, 1.0)], "took nan s"),
    ],
)
def test_refuses_what_cannot_be_fitted(messages, message):
    with pytest.raises(ArgumentError, match=message):
        fit_link(messages)
