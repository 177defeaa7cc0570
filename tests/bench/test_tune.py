from functools import partial

import pytest
from jobs import executed, needs_mpi

import simdist as sd
from simdist.bench import sweep
from simdist.bench.tune import _fastest
from simdist.cluster import Tuned
from simdist.collectives import algorithms
from simdist.collectives.registry import choose
from simdist.errors import ArgumentError

bench = partial(executed, sweep)


def test_direct_is_taken_where_nothing_is_clearly_faster():
    medians = {"ring": 10.0, "tree": 20.0, "direct": 10.4, "direct, own memory": 11.0}
    assert _fastest("all_reduce", medians) == ("direct", "ring")
    assert _fastest("all_reduce", {"ring": 10.0, "direct": 30.0, "direct, own memory": 5.0}) == ("ring", "direct")
    assert _fastest("gather", {"linear": 2.0, "binomial": 1.0}) == ("binomial", "binomial")


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (["--world", "virtual"], "--tune starts jobs of real ranks itself"),
        (["--ranks", "1"], r"--ranks \[1\]: tuning needs at least 2"),
        (["--algorithms", "ring"], "--algorithms with --tune, which measures all"),
        (["--cluster", "h100"], "--cluster with --tune"),
        (["--picture", "x.png"], "--picture with --tune"),
        (["broadcast"], "broadcast with --tune, which measures all"),
        (["--repeats", "5"], "--repeats with --tune"),
        (["--out", "nowhere/t.toml"], "cannot write nowhere/t.toml: needs the name of a file"),
    ],
)
def test_refuses_what_cannot_be_tuned(words, fault, monkeypatch):
    monkeypatch.setattr(sweep, "tune", None)
    with pytest.raises(ArgumentError, match=fault):
        bench("--tune", *words)


def picked(comm):
    choice = choose("all_reduce", comm, 2048)
    return comm.cluster.tuned is not None, choice.shared.name, choice.own.name


@needs_mpi
@pytest.mark.slow  # a job that measures wants the cores for itself
def test_auto_goes_by_what_was_measured_in_later_jobs(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert sd.run(picked, 2, world="mpi").results == [(False, "direct", "direct")] * 2
    assert bench("--tune", "--ranks", "2", "--sizes", "2K") == 0
    assert str(tmp_path / "simdist" / "tuned.json") in capsys.readouterr().out
    table = Tuned.load(Tuned.path())
    for (operation, ranks), picks in table.picks.items():
        assert ranks == 2
        for pick in picks:
            assert {pick.shared, pick.own} <= set(algorithms(operation))
    pick = table.pick("all_reduce", 2, 2048)
    assert sd.run(picked, 2, world="mpi").results == [(True, pick.shared, pick.own)] * 2
    (tmp_path / "simdist" / "tuned.json").write_text("spoiled")
    assert sd.run(picked, 2, world="mpi").results == [(False, "direct", "direct")] * 2
