"""The verb `plot`, as the command line calls it."""

import argparse
import json
from copy import deepcopy

import numpy as np
import pytest

import simdist as sd
from simdist.cli import plot, plot_schedule
from simdist.collectives import all_reduce
from simdist.comm import Mesh
from simdist.errors import ArgumentError, DataError, UnknownNameError
from simdist.nn import Shape, gpt
from simdist.parallel import pipeline
from simdist.parallel.parts import MeshParts
from simdist.parallel.pipeline.schedules import registry
from simdist.trace import Trace


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


def test_the_traffic_of_a_part_of_a_run(trace, monkeypatch):
    seen, draw = [], plot.traffic
    monkeypatch.setattr(plot, "traffic", lambda of, **options: seen.append(len(of.sends())) or draw(of, **options))
    second_s = sorted({s.start_s for s in Trace.load(trace).sends()})[1]  # of a ring's four steps
    for words in ([], ["--end", second_s], ["--start", second_s]):
        command(trace, "--kind", "traffic", *words)
    assert seen == [12, 3, 9]


@pytest.mark.parametrize(("suffix", "begins"), [(".svg", b"<?xml"), (".pdf", b"%PDF"), (".PNG", b"\x89PNG")])
def test_formats(trace, tmp_path, suffix, begins):
    out = tmp_path / f"picture{suffix}"
    assert command(trace, "-o", out, "--arrows", "--start", 0, "--end", 1) == 0
    assert out.read_bytes().startswith(begins)


def test_a_page(trace, tmp_path, capsys):
    assert command(trace, "--html") == 0
    page = trace.with_name("t.html").read_text()
    assert page.startswith("<!doctype html>")
    assert "all_reduce ring" in page
    assert "t.html" in capsys.readouterr().out
    command(trace, "--html", "--start", 0, "-o", tmp_path / "other.html")
    assert (tmp_path / "other.html").read_text() == page


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (["schedule", "gpipe", "--html"], "--html is for a trace, and this is a schedule"),
        (["t.json", "--html", "--kind", "traffic"], "not t.json with traffic"),
        (["t.json", "--html", "--arrows"], "--arrows is for pictures of a timeline or a schedule"),
        (["t.json", "--html", "--width", "5"], "--width is 5, and --html a page as wide as its window"),
        (["t.json", "--kind", "traffic", "--arrows"], "--arrows is for pictures of a timeline or a schedule"),
        (["t.json", "--html", "-o", "t.png"], "must end in .html"),
        (
            ["t.json", "--html", "-o", "nowhere/t.html"],
            "nowhere/t.html: needs .* an existing folder",
        ),
        (["t.json", "--kind", "traffic", "--start", "99"], "nothing begins from 99 s to inf s in t.json"),
        (["t.json", "--kind", "traffic", "--start", "nan"], "nothing begins from nan s to inf s in t.json"),
    ],
)
def test_pages_that_cannot_be_written(words, fault, trace, monkeypatch):
    monkeypatch.chdir(trace.parent)
    with pytest.raises(ArgumentError, match=fault):
        command(*words)
    assert list(trace.parent.iterdir()) == [trace]


def test_a_link_to_itself_is_no_trace(tmp_path):
    (tmp_path / "loop.json").symlink_to("loop.json")
    for options in ((), ("--html",)):
        with pytest.raises(DataError, match="cannot read the trace .*loop.json: Too many levels of symbolic links"):
            command(str(tmp_path / "loop.json"), *options)


def test_a_folder_stands_for_the_trace_in_it(trace, tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    trace.rename(folder / "trace.json")
    for options, drawn in (((), "trace-timeline.png"), (("--html",), "trace.html")):
        assert command(str(folder), *options) == 0
        assert (folder / drawn).exists()


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
        (["."], DataError, "cannot read the trace trace.json: No such file"),
        ([".", "--html"], DataError, "cannot read the trace trace.json: No such file"),
        (["x" * 300], DataError, "cannot read the trace x.*: File name too long"),
        (["x" * 300, "--html"], DataError, "cannot read the trace x.*: File name too long"),
        (["collective", "all_reduce", "ring", "-o", "x" * 300 + ".png"], ArgumentError, "x.png: File name too long"),
        (["one.json", "two.json"], UnknownNameError, "unknown subject 'one.json'"),
        (["collective"], ArgumentError, "takes an operation and an algorithm, not .*; those of all_reduce: .*ring"),
        (["collective", "broadcast"], ArgumentError, "an algorithm, not .*; those of broadcast: .*binomial"),
        (["collective", "broadcst"], UnknownNameError, "did you mean 'broadcast'"),
        (["collective", "all_reduce", "rng"], UnknownNameError, "did you mean 'ring'"),
        (["collective", "all_reduce", "ring", "--ranks", "99"], ArgumentError, "99 ranks"),
        (["collective", "all_reduce", "ring", "--arrows"], ArgumentError, "--arrows is for pictures of a timeline"),
        (
            ["collective", "all_reduce", "ring", "-o", "ring.bmp"],
            ArgumentError,
            r"ring\.bmp: its name must end in \.png",
        ),
        (
            ["collective", "all_reduce", "ring", "-o", "nowhere/r.png"],
            ArgumentError,
            r"nowhere/r\.png: needs .* folder",
        ),
        (
            ["schedule"],
            ArgumentError,
            "^plot schedule: needs the name of one schedule; there are naive, gpipe, .*, zb-h1",
        ),
        (["schedule", "zbh3"], UnknownNameError, "did you mean 'zb-h2'"),
        (["schedule", "gpipe", "--chunks", "2"], UnknownNameError, "unknown option of gpipe 'chunks'"),
        (["schedule", "gpipe", "--memory-limit", "2"], UnknownNameError, "unknown option of gpipe 'memory_limit'"),
        (["schedule", "zb-auto", "--memory-limit", "0.5"], ArgumentError, r"zb-auto within 0\.5 of memory"),
        (["schedule", "gpipe", "--against", "gpipe"], ArgumentError, "--against is gpipe, the same schedule"),
        (["schedule", "gpipe", "--stages", "0"], ArgumentError, "stages=0"),
        (["schedule", "gpipe", "--against", "nowhere.txt"], DataError, r"cannot read the schedule nowhere\.txt"),
        (["schedule", "gpipe", "--times", "1", "-1", "1"], ArgumentError, "backward_input is -1"),
        (["schedule", "gpipe", "--width", "nan"], ArgumentError, "nan inches wide"),
        (["collective", "all_reduce", "ring", "--width", "nan"], ArgumentError, "nan inches wide"),
        (["schedule", "gpipe", "--width", "1e9"], ArgumentError, "at most 100"),
        (["shards", "tp"], ArgumentError, r"takes only options, not \['tp'\]"),
        (["shards", "--tp", "3"], ArgumentError, "8 heads on tp 3 leave 2 over"),
        (["shards", "--sp", "0"], ArgumentError, "'sp': 0"),
        (["shards", "--arrows"], ArgumentError, "--arrows is for pictures of a timeline or a schedule"),
        (["shards", "--ranks", "2"], ArgumentError, "--ranks is for a collective, and this is shards"),
        (["runs", "a", "b", "--tp", "2"], ArgumentError, "--tp is for shards, and this is runs"),
        (["runs"], ArgumentError, "takes the folders of different runs"),
        (["runs", "a", "a"], ArgumentError, "takes the folders of different runs"),
        (["runs", "nowhere"], DataError, r"no losses in nowhere/metrics\.jsonl"),
    ],
)
def test_what_cannot_be_drawn(words, error, fault, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error, match=fault):
        command(*words)
    assert not list(tmp_path.iterdir())


def test_nothing_is_said_of_one_schedule_if_there_is_no_other(capsys):
    with pytest.raises(UnknownNameError, match="unknown schedule 'gpip'"):
        command("schedule", "gpipe", "--against", "gpip")
    assert capsys.readouterr().out == ""


def test_a_schedule_of_very_many_actions_is_told_before_it_is_drawn(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(plot_schedule, "_MANY", 100)
    assert command("schedule", "gpipe", "--micro-batches", 16, "-o", tmp_path / "x.png") == 0
    assert capsys.readouterr().err == "gpipe: 128 actions, which take about 0 s\n"


def test_a_schedule(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert command("schedule", "zb-h1", "--stages", 4, "--micro-batches", 8) == 0
    assert is_png(tmp_path / "zb-h1-4-8.png")
    assert "the longest rank's own span        3.0000     3.0000" in capsys.readouterr().out
    words = ["--memory", "--arrows", "--times", 1, 2, 0.5, "--communication", 0.1, "--chunks", 3, "-o", "two.svg"]
    assert command("schedule", "interleaved-1f1b", "--against", "zb-v", *words) == 0
    assert "times: a forward 1, an input gradient 2, a weight gradient 0.5" in capsys.readouterr().out
    assert (tmp_path / "two.svg").exists()


def test_several_schedules_in_one_picture(tmp_path, capsys):
    others = ["--against", "interleaved-1f1b", "--against", "zb-v", "--against", "zb-auto", "--memory-limit", 4]
    assert command("schedule", "gpipe", *others, "--chunks", 2, "-o", tmp_path / "four.png") == 0
    assert is_png(tmp_path / "four.png")
    told = [line.partition(":")[0] for line in capsys.readouterr().out.splitlines() if "makespan" in line]
    assert told == ["gpipe", "interleaved-1f1b", "zb-v", "zb-auto"]
    with pytest.raises(ArgumentError, match="--against is zb-v, the same schedule"):
        command("schedule", "gpipe", "--against", "zb-v", "--against", "zb-v")


def test_other_papers_names_take_the_options_of_ours(tmp_path, capsys):
    def told(*words):
        assert command("schedule", *words, "-o", tmp_path / "x.png") == 0
        return capsys.readouterr().out

    assert told("1f1b", "--against", "VPP", "--chunks", 3) == told(
        "1f1b", "--against", "interleaved-1f1b", "--chunks", 3
    )
    assert told("ZB-2P") == told("zb-auto")


@pytest.mark.parametrize(("name", "messages", "told"), [("1f1b", 0.5, 1), ("1f1b", 0, 0), ("zb-auto", 0.5, 0)])
def test_formulas_are_told_to_leave_messages_out(name, messages, told, capsys):
    assert command("schedule", name, "--communication", messages, "--text") == 0
    assert capsys.readouterr().out.count("for messages that take no time") == told


def test_a_schedule_of_ones_own(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(registry, "_MAKERS", deepcopy(registry._MAKERS))

    @pipeline.named("mine")
    def mine(stages, micro_batches):
        m = range(micro_batches)
        row = [*map(pipeline.Forward, m), *map(pipeline.BackwardInput, m), *map(pipeline.BackwardWeight, m)]
        return pipeline.Schedule("mine", [row] * stages)

    assert command("schedule", "mine", "--against", "gpipe", "--stages", 2, "--micro-batches", 3) == 0
    assert is_png(tmp_path / "mine-2-3.png")
    out = capsys.readouterr().out
    assert "the longest rank's own span        2.0000          -" in out  # (p-1)(F+B), and no paper
    assert "the longest rank's own span        3.0000     3.0000" in out


def test_a_schedule_that_is_sought(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = ["--stages", 3, "--micro-batches", 6, "--memory-limit", 3, "--memory-of", 1, 1, "--against", "zb-auto"]
    assert command("schedule", "zb-h1", *words) == 0
    assert is_png(tmp_path / "zb-h1-3-6.png")
    assert capsys.readouterr().out.count("the longest rank's own span        2.0000     2.0000") == 2
    assert command("schedule", "zb-auto", "--text", "--times", 1, 1, 0.5) == 0
    out = capsys.readouterr().out
    assert "simulated      bound" in out
    assert "peak memory (1, then 0.5) of rank 3" in out


def test_a_schedule_as_text_and_from_text(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert command("schedule", "gpipe", "--stages", 2, "--micro-batches", 2, "--text") == 0
    out = capsys.readouterr().out
    assert out.startswith("# gpipe: 2 ranks, 2 micro-batches, flush\nF0 F1 B1 B0\nF0 F1 B1 B0\n")
    assert not list(tmp_path.iterdir())
    (tmp_path / "mine.txt").write_text("F0 F1 B0 B1\nF0 B0 F1 B1\n")
    assert command("schedule", "mine.txt", "-o", "mine.png") == 0
    assert is_png(tmp_path / "mine.png")
    capsys.readouterr()
    (tmp_path / "mine.txt").write_text("# gpipe: 2 ranks, 2 micro-batches, flush\nF0 F1 B0 B1\nF0 F1 B0 B1\n")
    for words in (["gpipe", "--against", "mine.txt"], ["mine.txt", "--against", "gpipe"]):
        command("schedule", *words, "-o", "two.svg")
        out = capsys.readouterr().out  # formulas beside gpipe's own rows, not beside those that are called so
        assert out.count("the longest rank's own span        3.0000     3.0000") == 1
        assert out.count("the longest rank's own span        3.0000          -") == 1
        assert "mine.txt: 9; idle" in (tmp_path / "two.svg").read_text()
        with pytest.raises(ArgumentError, match=r"mine.txt is a schedule of 2 ranks and 2 .*; 4 stages and 2 "):
            command("schedule", *words, "--stages", 4)
    command("schedule", "mine.txt")
    assert is_png(tmp_path / "mine-2-2.png")
    with pytest.raises(UnknownNameError, match="unknown option of mine.txt 'chunks'"):
        command("schedule", "mine.txt", "--chunks", 3)
    (tmp_path / "mine.txt").write_text("F0 F1 B0 B1\nF0 B0 F1\n")
    with pytest.raises(ArgumentError, match="micro-batch 1 needs F1 and B1"):
        command("schedule", "mine.txt")
    (tmp_path / "mine.txt").write_bytes(b"\xff")
    with pytest.raises(DataError, match=r"mine\.txt is no text"):
        command("schedule", "mine.txt")


@pytest.mark.parametrize("kind", ["attention", "experts"])
def test_a_trace_of_another_kind(tmp_path, kind):
    def program(comm):
        shape = Shape(1, 8, 2, 8, experts=4, group=2)
        model = gpt(shape, MeshParts(Mesh(comm, sp=2)))
        model.parameters.bind(np.zeros(model.parameters.size), np.zeros(model.parameters.size))
        model.forward(np.zeros((2, 9), np.uint8))

    sd.run(program, ranks=2).trace.save(tmp_path / "t.json")
    assert command(tmp_path / "t.json", "--kind", kind) == 0
    assert is_png(tmp_path / f"t-{kind}.png")


MESHES = [
    ["--tp", 2, "--dp", 2],
    ["--ep", 2, "--tp", 2, "--experts", 4, "--layers", 1],
    ["--sp", 2, "--ulysses", "--context", 8],
    ["--pp", 2, "--tp", 2, "--sequence-parallel"],
]


@pytest.mark.slow(but=2)
@pytest.mark.parametrize("mesh", MESHES, ids=str)
def test_shards(tmp_path, monkeypatch, capsys, mesh):
    monkeypatch.chdir(tmp_path)
    assert command("shards", *mesh, "--model-width", 16, "--heads", 4) == 0
    assert is_png(tmp_path / "shards.png")


def test_shards_of_a_vocabulary_that_three_ranks_share(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert command("shards", "--tp", 3, "--heads", 3, "--model-width", 36, "--layers", 1, "--vocabulary", 258) == 0
    assert is_png(tmp_path / "shards.png")


def run_folder(path, losses):
    path.mkdir()
    lines = [{"step": s, "train_loss": loss, "validation_loss": None} for s, loss in enumerate(losses, 1)]
    names = ["learning_rate", "gradient_norm", "tokens_per_s", "communication_share", "sent_bytes"]
    text = "".join(json.dumps(line | dict.fromkeys(names, 0)) + "\n" for line in lines)
    (path / "metrics.jsonl").write_text(text)
    return path


def test_runs(tmp_path, capsys):
    folders = [run_folder(tmp_path / name, losses) for name, losses in (("one", [3, 2, 1]), ("two", [3, 2, 1.5]))]
    assert command("runs", *folders, "-o", tmp_path / "both.png") == 0
    assert is_png(tmp_path / "both.png")
