from math import nan
from types import SimpleNamespace

import pytest

import simdist as sd
from simdist.arrays import CATEGORIES, Moment
from simdist.cluster import Device, Link, preset
from simdist.collectives import cost
from simdist.nn.formulas import model_flops
from simdist.trace import Span, Trace
from simdist.training import Config, Trainer, report
from simdist.training.models import shape
from simdist.training.report import duration, loss_words, peak_words
from simdist.training.traffic import Call, transfer_seconds

GPT = {"model": "gpt", "layers": 1, "width": 8, "heads": 2, "context_bytes": 6, "validation_windows": 4}


def program(comm, settings, rate=0.0):
    trainer = Trainer(comm, Config(**settings))
    line = [line for line in trainer.run() if line][-1]
    trace = trainer.trace()
    if trace is None:
        return None
    told = report(trainer, line, trace, comm.cluster, rate)
    return [tuple(row) for row in told.rows], str(told), trainer.method.gradient.nbytes


@pytest.fixture
def settings(tmp_path):
    (tmp_path / "text").write_bytes(bytes(range(256)) * 40)
    return {"data": str(tmp_path / "text"), "steps": 3, "global_batch_size": 8, "hidden_width": 16, "algorithm": "ring"}


def test_measured_beside_predicted_beside_formula(spmd, settings):
    rows, text, num_bytes = spmd(program, 4, settings)[0]
    sent = cost("all_reduce", "ring", ranks=4, num_bytes=num_bytes, itemsize=4).sent_bytes
    assert rows[0][1:3] == (f"{sent:,}", f"{sent:,}")
    assert rows[0][3] == f"{2 * num_bytes * 3 / 4:,.0f}"
    assert rows[1][1:3] == ("6", "6")
    assert "4 ranks, ddp: all_reduce ring" in text
    assert f"{sent:,}" in text


def test_in_virtual_time_the_prediction_is_what_happens(settings):
    rows, _, _ = sd.run(program, 4, args=(settings,)).results[0]
    assert rows[2][1] == rows[2][2]


def test_where_only_bytes_take_time_the_formulas_agree(settings):
    """Buckets of equal layers: several collectives of a size."""
    told = settings | {"hidden_layers": 4, "bucket_bytes": 1, "clip_norm": 0.0}
    cluster = preset("h100").with_(device=Device("quick", 1e20, 1e20, 80e9), inside=Link(0.0, 1e6))
    rows, _, num_bytes = sd.run(program, 4, args=(told,), cluster=cluster).results[0]
    cells = [[cell.removesuffix(" ms").replace(",", "") for cell in row[1:]] for row in (rows[0], rows[2])]
    sent, seconds = (list(map(float, each)) for each in cells)
    assert sent == pytest.approx([2 * num_bytes * 3 / 4] * 3, rel=0.02)
    assert seconds == pytest.approx([each / 1e3 for each in sent], rel=0.02)  # in ms, at a byte a microsecond


@pytest.mark.parametrize(("precision", "itemsize"), [("float32", 4), ("bf16", 2)])
def test_keys_and_values_go_round_once_forward_and_with_their_gradients_backward(settings, precision, itemsize):
    """By ring attention; all else that two ranks send passes through the memory that they share. Gradients are sums,
    which travel in 4 bytes; the paper knows no such difference."""
    own = {"layers": 2, "context_bytes": 12, "global_batch_size": 8, "steps": 3, "sp": 2, "precision": precision}
    rows, _, _ = sd.run(program, 2, args=(GPT | own | {"data": settings["data"]},)).results[0]
    items = 2 * 8 * (12 // 2) * 8  # of 6 tokens each of 8 windows, 8 wide
    sent, said = (f"{2 * items * num_bytes:,}" for num_bytes in (2 * itemsize + 4, 3 * itemsize))
    assert rows[0][1:] == (sent, sent, said)


def test_one_rank_sends_nothing(spmd, settings):
    rows, text, _ = spmd(program, 1, settings)[0]
    assert rows and all(row[0].startswith("peak bytes of ") for row in rows)
    assert "1 rank\n" in text
    assert not any("communication" in row[0] for row in rows)


def test_auto_says_what_it_picked(spmd, settings):
    _, text, _ = spmd(program, 2, settings | {"algorithm": "auto"})[0]
    assert "all_reduce auto" not in text
    assert "2 ranks, ddp: all_reduce " in text


def test_waiting_for_a_late_rank_is_not_the_reduction():
    early = [Span(0, "main", "all_reduce ring", start, start + 5, 80) for start in (0.0, 10.0)]
    late = [Span(1, "main", "all_reduce ring", start, start + 1, 80) for start in (3.0, 13.0)]
    other = [Span(rank, "main", "all_reduce ring", 4.0, 14.0, 16) for rank in (0, 1)]
    trace = Trace([*early, *late, *other], 2)
    assert transfer_seconds(trace, Call("all_reduce", "ring", 80, (0, 1), "")) == 2
    assert transfer_seconds(trace, Call("all_reduce", "tree", 80, (0, 1), "")) is None


def test_times_are_of_the_steps_since_it_went_on(settings, tmp_path):
    def gone_on(comm):
        first = Trainer(comm, Config(**settings | {"steps": 2, "checkpoint_every": 2}), tmp_path / "checkpoints")
        list(first.run())
        second = Trainer(comm, Config(**settings | {"steps": 5}))
        second.resume(tmp_path / "checkpoints")
        line = [line for line in second.run() if line][-1]
        trace = second.trace()
        return trace and str(report(second, line, trace, comm.cluster)), second.profiler.total.seconds

    told, seconds = sd.run(gone_on, 2).results[0]
    assert f"5 steps of 8 windows, those since step 2 in {seconds * 1e3:.3g} ms: " in told


def test_a_loss_that_was_not_of_the_last_step_says_of_which(settings):
    def stopped(comm):
        trainer = Trainer(comm, Config(**settings | {"steps": 9, "interval": 4}))
        lines = [next(run) for run in [trainer.run()] for _ in range(6)]
        trace = trainer.trace()
        return trace and [
            str(report(trainer, line, trace, comm.cluster)) for line in (lines[3], lines[3]._replace(step=6))
        ]

    earlier, last = sd.run(stopped, 2).results[0]
    assert "validation loss after step 4: " in earlier
    assert "validation loss after" not in last


def test_without_a_record_nobody_knows_what_they_did(settings):
    rows, text, _ = sd.run(program, 2, args=(settings | {"trace_steps": 0},)).results[0]
    assert "2 ranks, ddp\n" in text
    known, *_ = sd.run(program, 2, args=(settings,)).results[0]
    assert [row[:2] for row in rows[:2]] == [row[:2] for row in known[:2]]


@pytest.mark.parametrize(
    ("step", "loss", "words"),
    [
        (5, 1.25, "validation loss 1.250 nats a byte (unigram entropy 3.000, bigram entropy 2.000)"),
        (4, 1.25, "validation loss after step 4: 1.250 nats a byte (unigram entropy 3.000, bigram entropy 2.000)"),
        (
            5,
            nan,
            "validation loss nan nats a byte (unigram entropy 3.000, bigram entropy 2.000). "
            "The run has diverged: try a lower learning_rate, or a larger batch",
        ),
    ],
)
def test_how_well_it_predicts(step, loss, words):
    assert loss_words(step, 5, loss, SimpleNamespace(unigram_entropy=3.0, bigram_entropy=2.0)) == words


def test_times_and_peaks_in_words():
    assert [duration(seconds) for seconds in (0.0, 0.01234, 0.9996, 1.0, 75.04)] == [
        "0.0 s", "12.3 ms", "1.0 s", "1.0 s", "75.0 s",
    ]  # fmt: skip
    live = [3000 if name == "gradients" else 1000 if name == "activations" else 0 for name in CATEGORIES]
    words = "memory of rank 0 peaks at 4,000 bytes{}, 75% of them gradients"
    assert peak_words(Moment(0.0, tuple(live), "head backward")) == words.format(" in head backward")
    assert peak_words(Moment(0.0, tuple(live), "")) == words.format("")
    assert "peaks at 0 bytes, 0% of them" in peak_words(Moment(0.0, (0,) * len(CATEGORIES), ""))


def summary(comm, settings, matmul_flops_per_s=0.0):
    trainer = Trainer(comm, Config(**settings))
    line = [line for line in trainer.run() if line][-1]
    trace = trainer.trace()
    told = trace and report(trainer, line, trace, comm.cluster, matmul_flops_per_s).summary
    return told, trainer.profiler.total, shape(trainer.config)


@pytest.mark.parametrize(
    ("zero", "precision", "twice"), [(1, "float32", True), (2, "bf16", False), (3, "float32", False)]
)
def test_what_zero_keeps_twice_is_explained(settings, zero, precision, twice):
    def program(comm):
        trainer = Trainer(comm, Config(**settings | {"zero": zero, "precision": precision}))
        line = [line for line in trainer.run() if line][-1]
        trace = trainer.trace()
        return trace and str(report(trainer, line, trace, comm.cluster))

    told = sd.run(program, 2).results[0]
    cells = next(line for line in told.splitlines() if "bytes of optimizer state" in line).split("  ")
    measured, predicted, formula = (int(cell.replace(",", "")) for cell in cells if cell.strip()[:1].isdigit())
    assert measured == predicted
    assert (predicted > 1.5 * formula) == ("this rank's part of the weights, once more" in told) == twice


@pytest.mark.parametrize(
    ("more", "ranks", "words"),
    [
        ({"steps": 1}, 1, "1 step of 8 windows in "),
        ({"order": "passes"}, 1, "3 steps of at most 8 windows in "),
        ({"dp": 2, "tp": 2}, 4, "4 ranks, dp 2 x tp 2, ddp: all_reduce direct, all_reduce ring"),
        ({"zero": 2, "shards": 2}, 4, "4 ranks, zero in 2 shards: "),
        ({"zero": 2, "shards": 1}, 2, "2 ranks, zero in 1 shard: "),
        ({"compress": "8-bit", "algorithm": None}, 2, "% fewer bytes than a ring all-reduce sends"),
        ({"compress": "top-k", "compress_share": 0.99, "algorithm": None}, 4, "% more bytes than a ring"),
        ({}, 1, "validation loss"),
        ({}, 1, " GFLOP/s a rank"),
    ],
    ids=str,
)
def test_what_it_says_of_a_run(settings, more, ranks, words):
    del settings["hidden_width"]
    found, *_ = sd.run(summary, ranks, args=(settings | GPT | more,)).results[0]
    assert any(words in line for line in found), found


@pytest.mark.parametrize("rate", [0.0, 67e12])
def test_what_mfu_is_a_share_of_is_told_where_it_is_printed(settings, rate):
    del settings["hidden_width"]
    _, text, _ = sd.run(program, 2, args=(settings | GPT | {"validation_windows": 0}, rate)).results[0]
    assert ("MFU: model FLOPs" in text) == (", MFU " in text) == bool(rate)


@pytest.mark.parametrize("rate", [0.0, 67e12])
def test_how_fast_it_was(settings, rate):
    """Model FLOPs are those of PaLM; the rate is of the operations that there were."""
    del settings["hidden_width"]
    wide = {"validation_windows": 0, "width": 256, "recompute": "full", "device": "phantom", "steps": 2}
    told = settings | GPT | wide
    run = sd.run(summary, 2, args=(told, rate), cluster=preset("h100"))
    (found, total, size), _ = run.results
    seconds, flops = total.seconds, total.flops
    speed = f"{2 * 8 * 6 / seconds:,.0f} tokens/s, {flops / seconds / 1e12:.1f} TFLOP/s a rank"
    shares = f" ({flops / seconds / 67e12:.0%} of the rate of matrix products)"
    shares += f", MFU {model_flops(size, 2 * 8) / seconds / 2 / 67e12:.1%}"
    assert f"{speed}{shares if rate else ''}, {total.communication_share:.0%} of the time" in found[1]
    assert model_flops(size, 2 * 8) / seconds / 2 / 67e12 > 0.001
    assert not any("validation loss" in line for line in found)
