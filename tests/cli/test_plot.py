"""The verb `plot`, as the command line calls it."""

import argparse

import numpy as np
import pytest

import simdist as sd
from simdist.cli import plot
from simdist.collectives import all_reduce
from simdist.errors import ArgumentError, DataError, UnknownNameError


def command(*words):
    parser = argparse.ArgumentParser()
    plot.add_arguments(parser)
    return plot.execute(parser.parse_args([str(word) for word in words]))


def program(comm):
    all_reduce(np.ones(8), comm, algorithm="ring")


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "t.json"
    sd.run(program, ranks=3).trace.save(path)
    return path


def is_png(path):
    return path.read_bytes().startswith(b"\x89PNG")


def test_a_trace_beside_itself(trace, capsys):
    assert command(trace) == 0
    assert is_png(trace.with_name("t-timeline.png"))
    assert "t-timeline.png" in capsys.readouterr().out
    assert command(trace, "--kind", "traffic", "--width", "3.4") == 0
    assert is_png(trace.with_name("t-traffic.png"))


@pytest.mark.parametrize(("suffix", "begins"), [(".svg", b"<?xml"), (".pdf", b"%PDF"), (".PNG", b"\x89PNG")])
def test_formats(trace, tmp_path, suffix, begins):
    out = tmp_path / f"picture{suffix}"
    assert command(trace, "-o", out, "--arrows", "--start", 0, "--end", 1) == 0
    assert out.read_bytes().startswith(begins)


def test_a_collective(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert command("collective", "all_reduce", "ring", "--ranks", 3) == 0
    assert is_png(tmp_path / "all_reduce-ring-3.png")
    assert command("collective", "reduce", "binomial", "--root", 2, "--steps", 0, 1, "-o", "r.svg") == 0
    assert (tmp_path / "r.svg").exists()


@pytest.mark.parametrize(
    ("words", "error", "fault"),
    [
        (["nowhere.json"], DataError, "cannot read the trace nowhere.json"),
        (["one.json", "two.json"], UnknownNameError, "unknown subject 'one.json'"),
        (["collective", "all_reduce"], ArgumentError, "takes an operation and an algorithm"),
        (["collective", "all_reduce", "rng"], UnknownNameError, "did you mean 'ring'"),
        (["collective", "all_reduce", "ring", "--ranks", "99"], ArgumentError, "99 ranks"),
        (
            ["collective", "all_reduce", "ring", "-o", "ring.bmp"],
            ArgumentError,
            r"ring\.bmp: its name must end in \.png",
        ),
        (["collective", "all_reduce", "ring", "-o", "nowhere/ring.png"], DataError, r"cannot write nowhere/ring\.png"),
    ],
)
def test_what_cannot_be_drawn(words, error, fault, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error, match=fault):
        command(*words)
    assert not list(tmp_path.iterdir())
