import csv
import errno
import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from jobs import executed, job, needs_mpi

from simdist import environment
from simdist.arrays import phantom
from simdist.bench import sweep
from simdist.bench.measure import _time, bus_bytes_per_s, median_seconds, rows
from simdist.bench.trial import Trial, perform
from simdist.cluster import Cluster, Device, Link, calibrated, preset
from simdist.collectives import algorithms, registry
from simdist.collectives.registry import Algorithm, find
from simdist.comm.ping_pong import ping_pong
from simdist.errors import ArgumentError, DataError, UnknownNameError
from simdist.launch import run
from simdist.plots import Measurement

simdist_bench = partial(executed, sweep)


def row(algorithm, num_bytes, seconds):
    return Measurement("all_reduce", algorithm, 4, num_bytes, seconds, seconds, seconds, 0.0)


# The figures of nccl-tests' own documentation: bandwidth of the bus from that of the algorithm.
@pytest.mark.parametrize(
    ("operation", "factor"),
    [
        ("all_reduce", 2 * 7 / 8),
        ("reduce_scatter", 7 / 8),
        ("all_gather", 7 / 8),
        ("all_to_all", 7 / 8),
        ("scatter", 7 / 8),
        ("gather", 7 / 8),
        ("broadcast", 1),
        ("reduce", 1),
    ],
)
def test_bus_bandwidth_is_that_of_nccl_tests(operation, factor):
    assert bus_bytes_per_s(operation, 8, 10**9, 0.5) == pytest.approx(2e9 * factor)


def test_bus_bandwidth_of_what_is_no_collective():
    with pytest.raises(UnknownNameError, match="'sendrecv'"):
        bus_bytes_per_s("sendrecv", 8, 10**9, 0.5)


def test_one_algorithm_overtakes_another_where_the_lines_cross():
    found = [row("quick", n, 1.0 + n) for n in (0, 10, 20)] + [row("wide", n, 8.0 + n / 2) for n in (0, 10, 20)]
    assert sweep.fastest(found, "measured") == [(0, "quick"), (14, "wide")]


@needs_mpi
def test_under_mpirun_its_ranks_are_timed_and_one_prints():
    done = job(2, "-m", "simdist", "bench", "all_reduce", "--sizes", "512", "--algorithms", "ring", "--repeats", "2")
    assert done.code == 0
    lines = done.output.splitlines()
    assert lines[0].startswith("all_reduce on 2 ranks of this-machine (measured)")
    assert lines[2].split()[:3] == ["512", "B", "ring"]
    assert not [line for line in lines if "arning" in line]


def test_a_wrong_result_is_not_timed(monkeypatch):
    known = find("all_reduce", "ring")

    def careless(x, comm, op):
        known.run(x, comm, op)
        x[-1] += comm.rank == 1

    faulty = Algorithm("all_reduce", "careless", careless, known.cost, known.formula)
    monkeypatch.setitem(registry._ALGORITHMS["all_reduce"], "careless", faulty)
    with pytest.raises(ArgumentError, match="all_reduce careless on 3 ranks gives rank 1 a wrong result"):
        run(_time, 3, args=("all_reduce", ["ring", "careless"], [8], 1, False))


@pytest.mark.parametrize("operation", ["all_reduce", "broadcast", "all_gather", "all_to_all"])
def test_measures_arrays_in_shared_memory_as_predictions_assume(operation):
    cluster = preset("this-machine")
    found = [
        run(_time, 2, args=(operation, ["direct"], [1 << 18], 1, hollow), cluster=cluster).results
        for hollow in (False, True)
    ]
    measured, predicted = (median_seconds(np.array(one)) for one in found)
    assert measured == pytest.approx(predicted)


def test_nobody_overtakes_where_one_is_always_fastest():
    found = [row("a", n, 1.0) for n in (1, 2)] + [row("b", n, 2.0) for n in (1, 2)]
    assert sweep.fastest(found, "formula") == [(1, "a")]


def test_no_figures_no_crossovers():
    assert sweep.fastest([row("a", 1, None)], "measured") == []
    assert sweep.fastest([row("a", 1, 0.0), row("b", 1, 0.0)], "measured") == []


def test_the_virtual_world_keeps_to_the_formula_where_the_formula_is_exact():
    """The ring's chunks are equal where p divides the length, so nothing is left out of its formula."""
    for found in rows("all_reduce", ["ring"], 4, [1 << 12, 1 << 20], "virtual", preset("this-machine")):
        assert found.predicted_s == pytest.approx(found.formula_s, rel=1e-9)
        assert found.measured_s is None


@pytest.mark.parametrize("operation", ["all_reduce", "broadcast", "reduce", "gather", "all_to_all"])
def test_a_prediction_is_what_the_collective_takes_when_nothing_was_before_it(operation):
    """Whatever was before it: a rank that leaves a barrier early and sends at once is not ahead of the others."""
    names, sizes = algorithms(operation), [256, 1 << 14]
    found = rows(operation, names, 16, sizes, "virtual", preset("h100"))
    assert len(found) == len(names) * len(sizes)
    for row in found:
        length = row.num_bytes // 4 // (16 if operation == "all_to_all" else 1)
        trial = Trial(operation, row.algorithm, length, "float32")
        x = phantom((16, length) if operation == "all_to_all" else length)
        alone = run(lambda comm, trial=trial, x=x: [perform(trial, comm, x)], 16, cluster=preset("h100"))
        assert row.predicted_s == pytest.approx(alone.elapsed_s, rel=1e-9)


@pytest.mark.parametrize("cold", [False, True])
def test_calibration_of_a_virtual_cluster_finds_it_again(cold, monkeypatch):
    """alpha, beta and gamma are known here, so the measurement itself is put to the test."""
    monkeypatch.setattr("simdist.comm.ping_pong._BEYOND_CACHES", 1 << 22)
    inside, between = Link(4e-6, 2e9), Link(9e-6, 1e9)
    toy = Cluster("toy", Device("toy", 1e15, 9e9, 1e9), inside, between, 3, nics_per_node=3, eager_bytes=1 << 30)
    found = run(ping_pong, 8, cluster=toy, args=([0, 64, 4096, 1 << 20], cold)).results
    assert [[bool(one.inside), bool(one.between)] for one in found] == [
        *([True, True], [True, True], [False, True]),  # node 0, beside 1
        *([True, True], [True, True], [False, True]),
        *([True, False], [True, False]),  # node 2, beside none
    ]
    for one in found:
        known = calibrated(*one)
        assert known.device.reduced_bytes_per_s == pytest.approx(3e9)
        for link, said in ((known.inside, inside if one.inside else between), (known.between, between)):
            said = said if one.between else inside
            assert (link.latency_s, link.bytes_per_s) == pytest.approx((said.latency_s, said.bytes_per_s))


def test_prints_all_columns_and_writes_them(tmp_path, capsys):
    file = tmp_path / "figures.json"
    words = (
        "all_reduce --world virtual --ranks 4 8 --sizes 512 64K 16M --algorithms Ring recursive-doubling --cluster h100"
    )
    assert simdist_bench(*words.split(), "--out", str(file), "--picture", str(tmp_path / "sweep.png")) == 0
    assert (tmp_path / "sweep.png").read_bytes().startswith(b"\x89PNG")
    out = capsys.readouterr().out
    assert "all_reduce on 4 ranks of h100" in out
    assert "fastest, formula: recursive_doubling, ring from" in out
    written = json.loads(file.read_text())
    assert [found["ranks"] for found in written["runs"]] == [4, 8]
    for found in written["runs"]:
        assert [(r["num_bytes"], r["algorithm"]) for r in found["rows"]] == [
            (size, name) for size in (512, 65536, 1 << 24) for name in ("ring", "recursive_doubling")
        ]
        assert found["fastest"]["measured"] == []


def test_writes_its_rows_as_csv(tmp_path):
    words = ["--world", "virtual", "--ranks", "2", "4", "--sizes", "512", "1K", "--algorithms", "ring", "tree"]
    assert simdist_bench(*words, "--out", str(tmp_path / "figures.csv")) == 0
    assert simdist_bench(*words, "--out", str(tmp_path / "figures.json")) == 0
    runs = json.loads((tmp_path / "figures.json").read_text())["runs"]
    every = [{k: "" if v is None else str(v) for k, v in row.items()} for run in runs for row in run["rows"]]
    with (tmp_path / "figures.csv").open(newline="") as file:
        assert list(csv.DictReader(file)) == every


def test_measured_times_of_ranks_that_share_cores_are_told_to_include_waiting(monkeypatch):
    monkeypatch.setattr(environment, "num_cores", lambda: 2)
    for ranks, measured_s, nodes in ((4, 0.01, 1), (2, 0.01, 1), (4, None, 1), (4, 0.01, 2)):
        row = Measurement("all_reduce", "ring", ranks, 1024, measured_s, 0.01, 0.01, 1e5)
        told = sweep._report([row], preset("this-machine").with_(devices_per_node=ranks // nodes))
        crowded = (ranks, measured_s, nodes) == (4, 0.01, 1)
        assert ("4 ranks share 2 cores, so measured times include waiting for a core" in told) == crowded


def test_a_second_stream_of_each_rank_needs_a_core_too(monkeypatch):
    monkeypatch.setattr(environment, "num_cores", lambda: 2)
    assert environment.crowding(2) == environment.crowding(1, 2) == ""
    assert environment.crowding(2, 2).startswith("2 ranks of 2 streams each share 2 cores, so measured times include")


@pytest.mark.parametrize(
    ("words", "error", "message"),
    [
        (["--algorithms", "rign"], UnknownNameError, "unknown all_reduce algorithm 'rign'"),
        (["allreduced"], UnknownNameError, "unknown collective with a size 'allreduced'"),
        (["barrier"], UnknownNameError, "unknown collective with a size 'barrier'"),
        ([""], UnknownNameError, "unknown collective with a size ''"),
        (["--cluster", ""], UnknownNameError, "unknown cluster ''"),
        (["--ranks", "0"], ArgumentError, "need to be at least 1"),
        (["--ranks", "2", str(10**26)], ArgumentError, "1" + "0" * 26 + " ranks of world .* need about"),
        (["--repeats", "0"], ArgumentError, "need to be at least 1"),
    ],
)
def test_refuses_what_it_cannot_time(words, error, message):
    with pytest.raises(error, match=message):
        simdist_bench(*words, "--world", "virtual")


@pytest.mark.parametrize(
    ("option", "name", "message"),
    [
        ("--out", "nowhere/x.json", "nowhere/x.json: needs the name of a file in an existing folder"),
        ("--out", ".", "needs the name of a file"),
        ("--picture", "nowhere/x.png", "nowhere/x.png: needs the name of a file in an existing folder"),
        ("--picture", "x.gif", "x.gif: its name must end in .png, .svg, .pdf"),
    ],
)
def test_where_nothing_can_be_written_nothing_is_measured(tmp_path, option, name, message, monkeypatch):
    monkeypatch.setattr(sweep, "rows", None)
    with pytest.raises(ArgumentError, match=message):
        simdist_bench("--world=virtual", option, str(tmp_path / name))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_disk_is_named():
    with pytest.raises(DataError, match="cannot write /dev/full: No space left"):
        simdist_bench("--world=virtual", "--ranks=2", "--sizes=1K", "--algorithms=ring", "--out=/dev/full")


def test_a_file_that_the_disk_cut_short_is_removed(tmp_path, monkeypatch):
    def cut_short(path, text):
        with path.open("w") as file:
            file.write(text[:9])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_text", cut_short)
    with pytest.raises(DataError, match="x.json: No space left"):
        simdist_bench("--world=virtual", "--ranks=2", "--sizes=1K", "--algorithms=ring", f"--out={tmp_path / 'x.json'}")
    assert not list(tmp_path.iterdir())


def test_says_how_long_segments_are(capsys):
    words = ["--world=virtual", "--ranks=4", "--cluster=h100", "--sizes=1M", "--algorithms", "ring", "double_tree"]
    assert simdist_bench(*words) == 0
    told = capsys.readouterr().out
    assert told.endswith("\ndouble_tree: in segments of 256 KiB; faster links need longer ones (segment_bytes)\n\n")
    assert "ring: in" not in told


def test_sizes_as_one_writes_them(tmp_path):
    file, sizes = tmp_path / "figures.json", ["512", "1e3", "1.5K", "0.25m", "0", "2KiB", "0.5gib"]
    words = ["--world=virtual", "--ranks=2", "--algorithms=ring", f"--out={file}", "--sizes", *sizes]
    assert simdist_bench(*words) == 0
    (run,) = json.loads(file.read_text())["runs"]
    assert [row["num_bytes"] for row in run["rows"]] == [512, 1000, 1536, 1 << 18, 0, 2048, 1 << 29]


@pytest.mark.parametrize("size", ["4Q", "1.5", "-4", "-4K", "nan", "inf", "", "K", "1e-2K", "KiB", "4Kib4", "4iB"])
def test_refuses_what_is_no_size(size, capsys):
    with pytest.raises(SystemExit):
        simdist_bench(f"--sizes={size}")
    assert f"{size!r} is not a size" in capsys.readouterr().err


def test_refuses_what_is_too_much(capsys):
    for size in ("99999999999G", "1e28", "1e999999K"):
        with pytest.raises(SystemExit):
            simdist_bench("--sizes", size)
        assert f"{size} are too many bytes; at most 1048576G" in capsys.readouterr().err


def test_no_ranks_have_no_bus():
    with pytest.raises(ArgumentError, match="ranks is 0"):
        bus_bytes_per_s("all_reduce", 0, 1, 1.0)
