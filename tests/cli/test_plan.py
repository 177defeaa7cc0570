"""The verb `plan`: what it prints, and that its command does what it says."""

import argparse
import re
import shlex

import pytest

from simdist.cli import main, plan, plan_options
from simdist.cli.settings import add_options, given_options
from simdist.cluster import preset
from simdist.planning import ways
from simdist.training import Config
from simdist.training.config import options

SMALL = ["--cluster=h100", "--ranks=4", "--layers=3", "--width=64", "--context=32", "--batch=8", "--vocabulary=512"]


def printed(capsys, *words):
    code = main(["plan", *words])
    out, err = capsys.readouterr()
    return code, out, err


def test_it_lists_the_best_of_each_mesh(capsys):
    code, out, _ = printed(capsys, *SMALL, "--top=3")
    assert code == 0
    lines = out.splitlines()
    assert re.match(r"gpt, [\d,]+ parameters, adamw, 8 windows of 32 tokens a step, on 4 ranks of h100", lines[0])
    assert lines[0].endswith(", each of 67 TFLOP/s in float32")
    head = next(i for i, line in enumerate(lines) if line.lstrip().startswith("dp"))
    rows = [line.split() for line in lines[head + 1 : head + 4]]
    assert len({tuple(row[:3]) for row in rows}) == 3
    assert lines[head + 4].startswith("and ")
    seconds = [float(re.search(r"([\d.]+) ms", line)[1]) for line in lines[head + 1 : head + 4]]
    assert seconds == sorted(seconds)


def test_a_vocabulary_that_leaves_out_tensor_parallelism_is_told(capsys):
    words = [*SMALL[:-1], "--top=3", "--pp=1", "--recompute=none"]
    _, out, _ = printed(capsys, *words, "--vocabulary=515")
    assert "No tp of 2, 4, … divides a vocabulary of 515, so none was tried: pad it, as with\n--vocabulary 1024," in out
    assert " 2s" not in out
    for other in (["--vocabulary=1024"], ["--vocabulary=515", "--tp=1"], ["--vocabulary=515", "--ranks=1"]):
        assert "No tp of" not in printed(capsys, *words, *other)[1]


def test_a_model_without_a_vocabulary_is_planned(capsys):
    _, out, _ = printed(capsys, "--cluster=h100", "--ranks=4", "--model=mlp", "--top=2")
    assert "--model=mlp" in out
    assert "No tp of" not in out


def test_what_is_given_is_in_every_line(capsys):
    _, out, _ = printed(capsys, *SMALL, "--pp=2", "--schedule=zb-h1", "--recompute=full")
    rows = [line for line in out.splitlines() if "zb-h1" in line and "--" not in line]
    assert rows
    assert all(" full " in row for row in rows)
    assert "--pp=2" in out.splitlines()[-1]


@pytest.mark.usefixtures("undrawn")
def test_the_command_that_it_prints_carries_the_best_out(capsys, tmp_path):
    _, out, _ = printed(capsys, *SMALL, "--zero=1", "--execute")
    executed, predicted = (float(x) for x in re.search(r"\nstep +([\d.]+) ms +([\d.]+) ms", out).groups())
    assert executed == pytest.approx(predicted, rel=0.05)
    words = shlex.split(out.splitlines()[-1])
    assert words[:2] == ["simdist", "train"]
    assert main([*words[1:], f"--out={tmp_path / 'run'}"]) == 0
    report = (tmp_path / "run" / "report.txt").read_text()
    assert "zero" in report and "MFU" in report


@pytest.mark.parametrize("words", [[], ["--zero=1"], ["--schedule=interleaved-1f1b", "--chunks=1"]], ids=str)
def test_each_way_has_a_command_of_its_own(words):
    verb, run = argparse.ArgumentParser(), argparse.ArgumentParser()
    plan.add_arguments(verb)
    add_options(run)
    args = verb.parse_args([*SMALL, "--clip-norm=0.5", *words])
    given = {"model": "gpt"} | given_options(args)
    for way in ways(given, 4, preset("h100")):
        for config in way:
            told = shlex.split(plan_options.command(args, given, config))
            assert Config(**given_options(run.parse_args(told[5:]))) == config


def test_a_published_model_stays_a_name_in_the_command(capsys):
    _, out, _ = printed(capsys, "--cluster=h100", "--ranks=2", "--model=gpt2", "--layers=1", "--batch=2", "--pp=1")
    lines = out.splitlines()
    assert lines[0].startswith(f"gpt, {124_439_808 - 11 * 7_087_872:,} parameters")  # 12 h² + 13 h a block
    assert {"--model=gpt2", "--layers=1"} < set(shlex.split(lines[-1]))
    assert "--width" not in lines[-1]


@pytest.mark.usefixtures("undrawn")
def test_experts_without_numbers_can_be_carried_out_too(capsys, tmp_path):
    _, out, _ = printed(capsys, *SMALL, "--experts=4", "--ep=2", "--micro-batches=1", "--recompute=none")
    words = shlex.split(out.splitlines()[-1])
    assert main([*words[1:], f"--out={tmp_path / 'run'}"]) == 0
    report = (tmp_path / "run" / "report.txt").read_text()
    assert "experts" in report
    assert "nan times" not in report


def test_a_config_file(capsys, tmp_path):
    file = tmp_path / "run.toml"
    file.write_text('width = 64\nlayers = 3\ncontext_bytes = 32\nglobal_batch_size = 8\noptimizer = "sgd"\n')
    code, out, _ = printed(capsys, "--cluster=a100", "--ranks=2", f"--config={file}", "--optimizer=adamw8bit")
    assert code == 0
    assert "adamw8bit, 8 windows of 32 tokens" in out


def test_a_picture(capsys, tmp_path):
    file = tmp_path / "plans.png"
    code, out, _ = printed(capsys, *SMALL, "--recompute=none", f"--picture={file}")
    assert (code, file.read_bytes()[:4]) == (0, b"\x89PNG")
    assert out.endswith(f"drawn: {file}\n")
    large = [*SMALL, "--layers=64", "--width=16384", "--heads=64", "--recompute=none", "--micro-batches=1"]
    code, out, _ = printed(capsys, *large, "--tp=1", "--pp=1", "--zero=0", f"--picture={tmp_path / 'none.png'}")
    assert (code, list(tmp_path.iterdir())) == (0, [file])
    assert out.endswith("none.png, because nothing fits\n")
    code, out, err = printed(capsys, *SMALL, "--picture=plans.xls")
    assert (code, out) == (2, "")
    assert "must end in" in err


def test_what_fits_nowhere(capsys):
    code, out, _ = printed(
        capsys, "--cluster=v100", "--ranks=2", "--layers=96", "--width=12288", "--heads=96", "--batch=2",
        "--context=2048", "--precision=fp16", "--recompute=full",
    )  # fmt: skip
    assert code == 0
    assert "\nnone\n" in out
    assert re.search(r"too large for \d meshes, of which tp 2 needs least, 1,\d{3} GB a rank", out)
    assert "the smallest of these:" in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--ranks=0"], "ranks is 0; needs at least 1"),
        (["--top=0"], "top is 0; needs at least 1"),
        (["--cluster=h1000"], "cluster 'h1000'"),
        (["--tp=3"], "no way to train on 4 ranks"),
        (["--offload=optimizer"], "offload is optimizer"),
        (["--algorithm=ring"], "algorithm is ring; plans are of algorithm auto"),
        (["--device=cuda"], "device is cuda; plans need device phantom"),
        (["--schedule=pipedream"], "schedule is pipedream"),
        (["--heads=5"], "width is 64 and heads is 5"),
    ],
)
def test_what_cannot_be(capsys, words, message):
    code, out, err = printed(capsys, *SMALL, *words)
    assert (code, out) == (2, "")
    assert message in err
    assert err.startswith("simdist plan: ")


def test_every_option_of_a_run_can_be_given(capsys):
    with pytest.raises(SystemExit):
        main(["plan", "--help"])
    told = capsys.readouterr().out
    assert all(f"--{name.replace('_', '-')}" in told for name, _ in options())
