import json
import re
import subprocess
import sys
from collections import namedtuple

import numpy as np
import pytest
from jobs import ROOT, needs_mpi

from simdist.bench.race import OWN, Arrays, Lane, Times, contenders, lane_of, race
from simdist.collectives import algorithms
from simdist.comm.solo import SoloCommunicator
from simdist.errors import ArgumentError


def test_all_take_as_many_turns_in_an_order_that_all_ranks_know():
    seen = []
    for _ in range(2):
        order = []
        calls = {name: lambda k, name=name, order=order: order.append((name, k)) for name in "abc"}
        found = race(calls, Lane(lambda: None, lambda x: x), budget_s=1.0, most=6, warm=False)
        assert set(found) == set("abc")
        assert all(0 <= times.p10 <= times.median <= times.p90 for times in found.values())
        seen.append(order)
    assert seen[0] == seen[1]
    assert seen[0][:3] == [("a", 0), ("b", 0), ("c", 0)]
    rounds = [seen[0][i : i + 3] for i in range(3, 21, 3)]
    assert [sorted(each) for each in rounds] == [[(name, k) for name in "abc"] for k in range(6)]
    assert len({tuple(name for name, _ in each) for each in rounds}) > 2


def test_the_second_time_counts_where_caches_are_to_hold_what_is_used():
    order = []
    calls = {name: lambda k, name=name: order.append((name, k)) for name in "ab"}
    race(calls, Lane(lambda: order.append("meet"), lambda x: x), budget_s=0.0, most=1)
    turns = [["meet", (name, 0), "meet", (name, 0)] for name in "ab"]
    assert order[4:] in (turns[0] + turns[1], turns[1] + turns[0])


def test_a_turn_lasts_as_long_as_the_slowest_rank_takes():
    """Another rank is said to take one second longer."""
    found = race({"a": lambda k: None}, Lane(lambda: None, lambda x: x + 1.0), budget_s=0.0)
    assert 1 <= found["a"].median < 1.1


def test_medians_and_tenths():
    assert Times.of(range(101)) == (50.0, 10.0, 90.0)


def test_cold_arrays_take_turns_and_warm_ones_do_not():
    arrays = Arrays(np.empty, 1 << 10)
    items = 1 << 22  # a quarter of the pool
    starts = [arrays.of(arrays.own, items, k, True).__array_interface__["data"][0] for k in range(5)]
    assert len(set(starts)) == 4 and starts[4] == starts[0]
    assert {arrays.of(arrays.own, items, k, False).__array_interface__["data"][0] for k in range(5)} == {starts[0]}


@pytest.mark.one_node
def test_every_algorithm_can_be_raced(spmd):
    def program(comm):
        arrays, lane, seen = Arrays(comm.empty, 1 << 10), lane_of(comm), []
        for operation in ("all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast", "reduce", "gather"):
            calls = contenders(comm, operation, algorithms(operation), 12, arrays, False)
            seen.append([operation, sorted(race(calls, lane, 0.0))])
        return seen

    for seen in spmd(program, 3):
        for operation, names in seen:
            assert set(names) - {"direct" + OWN} == set(algorithms(operation))


@pytest.fixture
def pictures(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    from benchmarks import race_pictures

    return race_pictures


Row = namedtuple("Row", "operation ranks num_bytes cold contender busbw over_limit")


def test_the_pictures_have_a_line_for_each_contender(pictures):
    rows = [
        Row("all_reduce", ranks, n, cold, name, 1e9 * (i + 1), i + 1.0)
        for ranks in (2, 4)
        for n in (1024, 4096)
        for cold in (False, True)
        for i, name in enumerate(["direct", "ring", "tree", "vendor, multiple", "copy"])
    ]
    for draw, best in ((pictures.race_bandwidth, 3.0), (pictures.race_over_limit, 2.0)):
        fig = draw(rows)
        assert [text.get_text() for text in fig.legends[0].get_texts()] == [
            "direct",
            "best by messages",
            "vendor, multiple",
        ]
        assert len(fig.axes) == 4
        (line,) = [
            line
            for line in fig.axes[0].lines
            if list(line.get_ydata()) == [best] * 2 and len(line.get_xdata()) == 2 and line.get_marker() != "None"
        ]
        assert list(line.get_xdata()) == [1024, 4096]


def test_a_picture_shows_one_operation(pictures):
    with pytest.raises(ArgumentError, match="these are 0"):
        pictures.race_bandwidth([])


def test_alone_there_is_a_lane_too():
    lane = lane_of(SoloCommunicator())
    lane.meet()
    assert lane.largest(np.array([3.0])).tolist() == [3.0]


@pytest.mark.slow
@needs_mpi
def test_the_benchmark_sets_all_beside_mpis_own_and_the_limit(tmp_path):
    words = ["--ranks", "2", "--sizes", "1024", "65536", "--operations", "all_reduce", "broadcast", "--quick"]
    words += ["--algorithms", "direct", "ring", "--out", str(tmp_path)]
    command = [sys.executable, "-m", "benchmarks.collectives", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "collectives.json").read_text())
    seen = {row["contender"] for row in rows if row["operation"] == "all_reduce"}
    ours = {"direct", "direct" + OWN, "auto", "auto" + OWN, "ring"}
    assert seen >= {*ours, "vendor, multiple", "vendor, serialized", "copy"}
    for row in rows:
        assert row["busbw"] == pytest.approx(row["num_bytes"] / row["median"])  # 2(p-1)/p is 1 for two ranks
        assert row["p10"] <= row["median"] <= row["p90"]
        assert row["over_limit"] > 0
        assert row["num_bytes"] in (1024, 65536)
    assert re.search(r"all_reduce, 2 ranks, warm: direct is × vendor, multiple: [\d.]+ 64 KiB\n", done.stdout)
    for name in ("all_reduce-bandwidth", "all_reduce-limit", "broadcast-bandwidth", "broadcast-limit"):
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
