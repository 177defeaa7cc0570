from dataclasses import replace
from itertools import count

import numpy as np
import pytest
from jobs import executed, needs_mpi

from simdist.bench import sweep
from simdist.bench.machine import _fitted, _longer, _passed_bytes_per_s
from simdist.cluster import find_cluster, preset
from simdist.comm.solo import SoloCommunicator
from simdist.errors import ArgumentError
from simdist.planning import Workbench, planned
from simdist.training import Config


def bench(*words):
    return executed(sweep, *map(str, words))


@needs_mpi
def test_a_machine_that_was_measured_is_a_cluster_for_which_steps_are_predicted(tmp_path, capsys):
    file = tmp_path / "mine.toml"
    assert bench("--machine", file) == 0
    told = capsys.readouterr().out
    cluster = find_cluster(str(file))
    assert cluster.devices_per_node == 2
    assert 1e6 < cluster.device.float64_flops_per_s < 1e15
    assert f"products of float32 {cluster.device.flops_per_s / 1e9:.3g} GFLOP/s" in told
    assert f"predict --cluster {file} --ranks 2 --model gpt\n" in told
    rates = [cluster.device.bfloat16_memory_bytes_per_s, cluster.device.float16_memory_bytes_per_s]
    assert all(0 < rate <= cluster.device.memory_bytes_per_s for rate in rates)
    plan = planned(Config(model="gpt", global_batch_size=4), Workbench(cluster, 2))
    longer = planned(Config(model="gpt", global_batch_size=8), Workbench(cluster, 2))
    assert 0 < plan.step.seconds < longer.step.seconds


def test_operations_on_memory_are_worth_the_bytes_that_they_count(monkeypatch):
    seconds, comm = count(), SoloCommunicator()
    monkeypatch.setattr(comm, "clock", lambda: float(next(seconds)))
    monkeypatch.setattr(comm, "barrier", lambda: None)
    x_bytes = 1024 * 256 * np.dtype(np.float32).itemsize
    norms, gelu = 2 * 3 * x_bytes, 3 * 4 * x_bytes  # each reads one array, and writes two
    assert _passed_bytes_per_s(comm) == norms + gelu


def test_how_many_times_as_long_a_step_takes_is_the_median_of_steps_in_turn(monkeypatch):
    """Of a clock on which float32, bf16 and fp16 take 1, 2 and 4 seconds in most rounds, and always 9 at first."""
    took, now, comm = [9, 9, 9] + [1, 2, 4] * 5 + [1, 8, 1] * 3, [0.0], SoloCommunicator()
    starts = count()

    def clock():
        if (call := next(starts)) % 2:
            now[0] += took[call // 2]
        return now[0]

    monkeypatch.setattr(comm, "clock", clock)
    assert _longer(comm) == [2, 4]


@pytest.mark.parametrize(("precision", "rate"), [("bf16", "bfloat16"), ("fp16", "float16")])
def test_a_rate_of_memory_is_found_from_the_time_that_it_leads_to(precision, rate):
    """The one with which a step was predicted to take so long."""
    cluster = preset("this-machine")
    config = Config(model="gpt", layers=1, global_batch_size=8)

    def step_s(precision, **own):
        bench = Workbench(cluster.with_(device=replace(cluster.device, **own)), 1)
        return planned(Config(**vars(config) | {"precision": precision}), bench).step.seconds

    for part in (0.9, 0.3, 0.05):
        name, own = f"{rate}_memory_bytes_per_s", part * cluster.device.memory_bytes_per_s
        times = step_s(precision, **{name: own}) / step_s("float32")
        assert _fitted(cluster, precision, times) == pytest.approx(own, rel=2e-3)
    assert _fitted(cluster, precision, 0.01) == cluster.device.memory_bytes_per_s, "no faster than float32"


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (["--world", "virtual"], "--machine starts jobs of real ranks itself"),
        (["broadcast"], "broadcast with --machine, which measures what training needs"),
        (["--tune"], "--machine with --tune"),
        (["--sizes", "4K"], "--sizes with --machine"),
        (["--out", "x.json"], "--out with --machine"),
        (["--ranks", "2", "4"], r"--ranks \[2, 4\] with --machine"),
        (["--ranks", "0"], "ranks"),
    ],
)
def test_refuses_what_does_not_go_with_it(words, fault, monkeypatch, tmp_path):
    monkeypatch.setattr(sweep, "measured_cluster", None)
    with pytest.raises(ArgumentError, match=fault):
        bench("--machine", tmp_path / "mine.toml", *words)


@pytest.mark.parametrize("name", ["mine.json", "mine", "no/folder/mine.toml", "."])
def test_refuses_a_file_that_no_cluster_could_be_read_from(name, monkeypatch, tmp_path):
    monkeypatch.setattr(sweep, "measured_cluster", None)
    with pytest.raises(ArgumentError, match=r"ends in .toml|existing folder"):
        bench("--machine", tmp_path / name)
