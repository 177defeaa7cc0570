"""The verb `predict`: what it says of one way, with what `plan` and execution say of the same."""

import re
import shlex

import pytest

from simdist.cli import main

SMALL = ["--cluster=h100", "--ranks=4", "--layers=3", "--width=64", "--context=32", "--batch=8", "--vocabulary=512"]
FIXED = ["--dp=2", "--tp=1", "--pp=2", "--zero=1", "--schedule=zb-h1", "--micro-batches=4", "--recompute=none"]


def printed(capsys, verb, *words):
    code = main([verb, *words])
    out, err = capsys.readouterr()
    return code, out, err


def test_it_says_what_plan_says_where_nothing_is_left_open(capsys):
    code, told, _ = printed(capsys, "predict", *SMALL, *FIXED)
    assert code == 0
    _, planned, _ = printed(capsys, "plan", *SMALL, *FIXED)
    for start in ("gpt, ", " 2   1   2     1     zb-h1", "step  ", "bytes of activations", "peak total"):
        (line,) = [line for line in told.splitlines() if line.startswith(start)]
        assert line in planned.splitlines()


def test_what_is_not_given_is_as_train_has_it(capsys, tmp_path):
    code, told, _ = printed(capsys, "predict", *SMALL, "--execute")
    assert code == 0
    executed, predicted = (float(x) for x in re.search(r"\nstep +([\d.]+) ms +([\d.]+) ms", told).groups())
    assert executed == pytest.approx(predicted, rel=0.05)
    words = shlex.split(told.splitlines()[-1])
    assert not any(word.startswith(("--tp", "--pp", "--zero", "--schedule")) for word in words)
    assert main([*words[1:], f"--out={tmp_path / 'run'}"]) == 0


def test_whether_it_fits(capsys):
    large = ["--layers=96", "--width=12288", "--heads=96", "--batch=4", "--context=2048", "--precision=bf16"]
    code, told, _ = printed(capsys, "predict", "--cluster=a100", "--ranks=4", *large)
    assert code == 0
    fault = r"\nit does not fit: the fullest rank holds [\d,]+ GB, and a device has 80 GB; simdist plan searches ways"
    assert re.search(fault, told)
    _, told, _ = printed(capsys, "predict", *SMALL)
    assert "\nit fits: " in told
    assert "simdist plan" not in told


@pytest.mark.parametrize("verb", ["predict", "plan"])
def test_how_long_all_steps_take_if_they_are_given(verb, capsys):
    _, told, _ = printed(capsys, verb, *SMALL, *FIXED)
    assert "device hours" not in told
    _, told, _ = printed(capsys, verb, *SMALL, *FIXED, "--steps=1000000")
    step_ms, days = float(re.search(r"\nstep +([\d.]+) ms", told)[1]), re.search(r"take ([\d.]+) days", told)[1]
    assert float(days) == pytest.approx(step_ms * 1000 / 86400, rel=5e-3)


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["--cluster=h100"], ["--precision was not given; with bf16 these devices compute 14.8 times as fast."]),
        (["--cluster=this-machine"], []),
        (["--cluster=h100", "--precision=float32"], []),
        (
            ["--cluster=h100", "--precision=bf16", "--context=1024"],
            ["--flash-attention was not given; without"],
        ),
        (["--cluster=h100", "--precision=bf16", "--context=1024", "--flash-attention"], []),
        (["--cluster=h100", "--precision=bf16", "--context=1024", "--model=mlp"], []),
    ],
    ids=str,
)
def test_a_default_that_fits_no_cluster_of_gpus_is_told(words, found, capsys):
    code, told, _ = printed(capsys, "predict", "--ranks=2", *words)
    lines = [line for line in told.splitlines() if "was not given" in line]
    assert code == 0
    assert all(map(str.startswith, lines, found))
    assert len(lines) == len(found)


def test_a_measured_time_tells_what_devices_reach(capsys, tmp_path):
    words = ["--ranks=4", "--model=gpt2-large", "--batch=32", "--precision=bf16"]
    _, told, _ = printed(capsys, "predict", "--cluster=h100", *words, "--measured=1.5")
    share = re.search(r"\na step of 1\.5 s is predicted with (flops_efficiency = [\d.]+), of", told)[1]
    (tmp_path / "ours.toml").write_text(f'like = "h100"\n[device]\n{share}\n')
    _, told, _ = printed(capsys, "predict", f"--cluster={tmp_path / 'ours.toml'}", *words)
    assert float(re.search(r"\nstep +([\d.]+) s", told)[1]) == pytest.approx(1.5, rel=5e-3)


@pytest.mark.parametrize(("seconds", "needs"), [("0", "more than 0"), ("nan", "more than 0"), ("inf", "a finite time")])
def test_a_time_that_no_step_takes_is_refused_before_the_work(seconds, needs, capsys):
    code, told, error = printed(capsys, "predict", *SMALL, f"--measured={seconds}")
    assert (code, told) == (2, "")
    assert error == f"simdist predict: --measured is {float(seconds)}; needs {needs}\n"


def test_a_cluster_and_a_run_of_ones_own(capsys, tmp_path):
    seconds = {}
    (tmp_path / "run.toml").write_text(
        'width = 64\nlayers = 3\nprecision = "bf16"\ncheckpoint_every = 3\ncheck_every = 2\n'
    )
    for efficiency in (1.0, 0.5):
        (tmp_path / "ours.toml").write_text(f'like = "a100"\n[device]\nmemory_efficiency = {efficiency}\n')
        files = [f"--cluster={tmp_path / 'ours.toml'}", f"--config={tmp_path / 'run.toml'}"]
        code, told, _ = printed(capsys, "predict", "--ranks=1", *files)
        assert code == 0
        assert "bf16" in told and "1 rank of ours" in told
        seconds[efficiency] = float(re.search(r"\nstep +([\d.]+) ms", told)[1])
    assert seconds[0.5] == pytest.approx(2 * seconds[1.0], rel=0.02)  # so small a model waits for memory alone


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--ranks=0"], "ranks is 0; needs at least 1"),
        (["--cluster=h1000"], "cluster 'h1000'"),
        (["--tp=8"], "4 heads go evenly on tp 1, 2, 4"),
        (["--batch=6"], "plans need a multiple of 4: 1 micro-batch on each of 4 ranks"),
        (["--device=cuda"], "device is cuda; plans need device phantom"),
        (["--compress=top-k"], "compress is top-k; plans are of compress none"),
        (["--method=async"], "method is async; plans are of method ddp, dp, zero, fsdp, pipeline"),
    ],
)
def test_what_cannot_be(capsys, words, message):
    code, out, err = printed(capsys, "predict", *SMALL, *words)
    assert (code, out) == (2, "")
    assert err.startswith("simdist predict: ") and message in err


@pytest.mark.usefixtures("undrawn")
def test_a_run_that_was_made_can_be_predicted_elsewhere(capsys, tmp_path):
    run = ["--model=gpt", *SMALL[2:], "--steps=1", "--pp=1", "--zero=1", "--validation-windows=4", "--sample-bytes=3"]
    assert main(["train", "--world=virtual", "--ranks=2", *run, f"--out={tmp_path / 'run'}"]) == 0
    capsys.readouterr()
    code, told, err = printed(capsys, "predict", *SMALL[:2], f"--config={tmp_path / 'run' / 'config.toml'}")
    assert (code, err) == (0, "")
    assert "zero=1" in told.splitlines()[-1]
