"""Plans as text."""

import math
import re
from dataclasses import replace
from types import SimpleNamespace

import pytest

from simdist.cluster import preset
from simdist.nn.formulas import matmul_flops, model_flops
from simdist.planning import Execution, Plan, Plans, Workbench, planned
from simdist.planning.job import Job
from simdist.planning.papers import papers
from simdist.planning.step import Step, computing_s, sending_s
from simdist.planning.text import _bytes, _time, details, fit_text, headline, mesh_text, overview, run_text, table
from simdist.training import Config
from simdist.training.models import shape

GPT = {"model": "gpt", "layers": 4, "width": 64, "heads": 4, "context_bytes": 32, "vocabulary": 512, "dropout": 0.1}
GPT |= {"global_batch_size": 64, "device": "phantom"}
PARTS_S = [0.6, 0.4, 0.5, 0.3, 0.2]
AXES = {"dp": 1, "tp": 1, "pp": 1, "sp": 1, "ep": 1}
STEP = Step(passes_s=1.0, bubble_s=0.5, gradients_s=0.3, update_s=0.2)


@pytest.fixture
def made_up(monkeypatch):
    """Plans of STEP are for no mesh of the bench: what its passes would take without messages is made up, too."""
    monkeypatch.setattr(Plan, "parts_s", lambda self, bench: PARTS_S)


def plan(num_bytes=5e9, **settings):
    """One of a step of two seconds."""
    return Plan(Config(**GPT | settings), AXES | {a: settings.get(a, 1) for a in AXES}, 0, {}, num_bytes, STEP)


@pytest.mark.parametrize(
    ("settings", "cells"),
    [
        ({}, "1 1 1 0 - 1 of 64 none"),
        ({"dp": 8, "method": "dp"}, "8 1 1 0 - 1 of 8 none"),
        ({"dp": 2, "tp": 2, "sequence_parallel": True, "micro_batches": 4}, "2 2s 1 0 - 4 of 8 none"),
        ({"dp": 4, "zero": 3, "shards": 2, "recompute": "full"}, "4 1 1 3/2 - 1 of 16 full"),
        ({"pp": 2, "schedule": "zb-h1", "micro_batches": 4, "zero": 1}, "1 1 2 1 zb-h1 4 of 16 none"),
        (
            {"pp": 2, "schedule": "interleaved-1f1b", "chunks": 2, "micro_batches": 4},
            "1 1 2 0 interleaved-1f1b of 2 4 of 16 none",
        ),
        ({"dp": 2, "sp": 2, "ulysses": True}, "2 1 1 2u 0 - 1 of 32 none"),
        ({"dp": 2, "sp": 4}, "2 1 1 4 0 - 1 of 32 none"),
        ({"dp": 4, "tp": 2, "sequence_parallel": True, "tp_overlap": True}, "4 2so 1 0 - 1 of 16 none"),
        ({"dp": 2, "ep": 2, "experts": 4}, "2 1 1 2 0 - 1 of 16 none"),
    ],
    ids=str,
)
def test_a_line_tells_the_whole_way(settings, cells, made_up):
    bench = Workbench(preset("h100"), 8)
    head, line, *below = table([plan(**settings)], bench)
    flops = model_flops(shape(Config(**GPT | settings)), 64)
    mfu = f"{flops / 2 / 8 / bench.machine(Config(**GPT)).device.flops_per_s:.0%}"
    shares = "20.0%", "25.0%", "15.0%", "10.0%"
    assert line.split() == [*cells.split(), "2", "s", f"{64 * 32 / 2:,.0f}", mfu, *shares, "5", "GB"]
    assert head.split()[:4] == ["dp", "tp", "pp", next((axis for axis in ("sp", "ep") if axis in settings), "zero")]
    marks = {"ring attention": "sp", "tp 4s:": "sequence_parallel", "tp 4so": "tp_overlap", "hybrid sharding": "shards"}
    marks["stages on each rank"] = "chunks"
    assert all(any(mark in text for text in below) == (setting in settings) for mark, setting in marks.items())


@pytest.mark.parametrize(("precision", "rate"), [("bf16", 989.4e12), ("float32", 67e12)])
def test_mfu_is_a_share_of_all_devices_peak(precision, rate, made_up):
    one = plan(precision=precision)._replace(step=Step(1e-5, 0.0, 0.0, 0.0))
    mfu = model_flops(shape(one.config), 64) / 1e-5 / 2 / rate
    assert f" {mfu:.0%} " in table([one], Workbench(preset("h100"), 2))[1]


@pytest.mark.parametrize("settings", [{"tp": 2}, {"tp": 2, "pp": 2, "micro_batches": 4}, {"dp": 2, "sp": 2}], ids=str)
def test_shares_of_a_step_are_those_of_its_parts(settings):
    """What ranks that share layers send each other is one of them; the rest of the step is computing."""
    bench = Workbench(preset("h100"), 4)
    one = planned(Config(**GPT, **settings), bench)
    head, line = table([one], bench)[:2]
    first = len(head.split()) - head.split().index("layers") + 1  # memory has two words
    layers, *others = (float(share.removesuffix("%")) / 100 for share in line.split()[-first:-2])
    assert layers > 0.05
    computing_share = computing_s(Job(one.config, bench)) / one.step.seconds
    assert computing_share + layers + sum(others) == pytest.approx(1, abs=2.5e-3)


def test_of_an_mlp_a_token_is_a_window(made_up):
    config, bench = Config(model="mlp", global_batch_size=64, device="phantom"), Workbench(preset("h100"), 1)
    assert headline(config, bench).startswith(f"mlp, {Job(config, bench).parts[0].size:,} parameters, ")
    line = table([plan()._replace(config=config)], bench)[1].split()
    assert line[8:] == ["-", "2", "s", "32", "-", "20.0%", "25.0%", "15.0%", "10.0%", "5", "GB"]


@pytest.mark.parametrize(
    ("flops", "memory", "told"), [(1.0, 1.0, ""), (0.8, 1.0, ", of which programs reach 80%"), (1.0, 0.5, "")]
)
def test_whether_devices_compute_at_their_peak_is_told(flops, memory, told):
    h100 = preset("h100")
    device = replace(h100.device, flops_efficiency=flops, memory_efficiency=memory)
    bench = Workbench(h100.with_(device=device), 1)
    assert headline(Config(**GPT, precision="bf16"), bench).endswith(f"of 989.4 TFLOP/s in bf16{told}")
    legend = table([plan()], bench)
    assert any(line.startswith("The devices compute at their peak: ") for line in legend) == (flops == memory == 1)


def test_what_memory_leaves_out_is_told(made_up):
    assert any(line.startswith("Memory: of arrays. Drivers, NCCL") for line in table([plan()], Workbench("h100", 1)))


@pytest.mark.parametrize("flash", [False, True])
def test_attention_of_either_kind_skips_scores_that_count_for_mfu(flash, made_up):
    one = plan(context_bytes=8192, flash_attention=flash)
    assert matmul_flops(shape(one.config), 64) < model_flops(shape(one.config), 64)
    assert "above 100% where attention on long windows skips those scores." in table([one], Workbench("h100", 1))


def test_how_long_a_run_takes(made_up):
    told = run_text(plan(steps=86_400), Workbench("h100", 8))
    assert told == "86,400 steps, of 0.177 billion tokens, take 2 days, 384 device hours, if nothing fails"
    one = plan(steps=1)._replace(config=Config(model="mlp", global_batch_size=64, steps=1, device="phantom"))
    assert run_text(one, Workbench("h100", 8)).startswith("1 step, of 6.4e-08 billion tokens, take 2.31e-05 days, ")


def test_axes_of_one_plan_have_a_column_for_all(made_up):
    lines = table([plan(dp=2), plan(sp=2)], Workbench(preset("h100"), 2), ["and 3 more"])
    assert [line.split()[:5] for line in lines[:3]] == [["dp", "tp", "pp", "sp", "zero"], [*"21110"], [*"11120"]]
    assert lines[3] == "and 3 more"


@pytest.mark.parametrize(
    ("best", "top", "too_large", "found"),
    [
        (2, 2, 0, [1, 2]),
        (3, 2, 0, [1, 2, "and 1 more"]),
        (0, 2, 1, ["none", "too large for 1 mesh, of which dp 4 needs least, 100 GB a rank"]),
        (1, 2, 2, [1, "too large for 2 meshes, of which dp 4 needs least, 100 GB a rank"]),
    ],
)
def test_an_overview_has_the_best_and_the_smallest(best, top, too_large, found, made_up):
    large = [plan((k + 1) * 1e11, dp=4 + k) for k in range(too_large)]
    plans = Plans([plan(dp=k + 1) for k in range(best)], large, 1234)
    head, *lines = overview(plans, Workbench(preset("h100"), 8), top)
    assert head == "1,234 ways tried; for each mesh the fastest that fits in 80 GB a rank:"
    told = [line for line in lines if line.startswith(("and", "none", "too large"))]
    rows = [int(line.split()[0]) for line in lines if line.endswith("5 GB")]
    assert [*rows, *told] == found


def test_a_mesh_has_its_own_axes_alone():
    assert mesh_text(plan(dp=2, pp=4)) == "dp 2 x pp 4"
    assert mesh_text(plan()) == "one rank"


def test_a_headline_has_the_speed_in_its_precision():
    bench = Workbench(preset("h100"), 1)
    size = 512 * 64 + 32 * 64 + 4 * (12 * 64**2 + 13 * 64) + 2 * 64
    words = f"gpt, {size:,} parameters, adamw, 64 windows of 32 tokens a step, on 1 rank of h100, each of "
    assert headline(Config(**GPT), bench) == f"{words}67 TFLOP/s in float32"
    assert headline(Config(**GPT, precision="bf16"), bench) == f"{words}989.4 TFLOP/s in bf16"


def test_details_are_those_of_the_fullest_rank():
    """Of the last stage, which is the third of the ranks, and sends another number of bytes than the first."""
    bench = Workbench(preset("h100"), 4)
    whole = planned(Config(**GPT, dp=2, pp=2, micro_batches=4, logits="untied"), bench)._replace(rank=1)
    job = Job(whole.config, bench)
    said, alone_s = papers(job, whole.step, 1), computing_s(job)
    took = Execution(1.5, [dict.fromkeys(whole.memory, 1000 * rank + 7) for rank in range(4)], [1, 2, 3, 4])
    rows, short = (
        {line[:42].strip(): re.split(r"  +", line[42:].strip()) for line in lines}
        for lines in (details(whole, bench, took), details(whole, bench))
    )
    assert details(whole, bench)[0].split() == ["predicted", "formula"]
    assert sending_s(job, 1) != sending_s(job, 0)
    assert rows["step"] == ["1.5 s", _time(whole.step.seconds)]
    assert rows["computing"] == [_time(alone_s), _time(said.computing_s)]
    assert rows["communication within layers"] == [_time(whole.step.passes_s - alone_s), _time(said.sharing_s)]
    assert rows["bubble"] == [_time(whole.step.bubble_s), _time(said.bubble_s)]
    assert rows["sending gradients, weights, hidden or not"] == [_time(sending_s(job, 1)), _time(said.sending_s)]
    for name, size in whole.memory.items():
        formula = [f"{said.memory[name]:,.0f}"] if name in said.memory else []
        assert rows[f"bytes of {name}"] == ["2,007", f"{size:,.0f}", *formula]
        assert short[f"bytes of {name}"] == [f"{size:,.0f}", *formula]
    assert rows["peak total"] == ["3", f"{whole.num_bytes:,.0f}"]


@pytest.mark.parametrize(
    ("held", "words"),
    [
        (100e9, "it fits: the fullest rank holds 100 GB, and a device has 100 GB"),
        (101e9, "it does not fit: the fullest rank holds 101 GB"),
    ],
)
def test_whether_a_plan_fits(held, words):
    assert fit_text(held, SimpleNamespace(device=SimpleNamespace(memory_bytes=100e9))).startswith(words)


@pytest.mark.parametrize(
    ("told", "words"),
    [
        (_bytes(45.64e9), "45.6 GB"),
        (_bytes(math.inf), "inf GB"),  # of a cluster of one's own, for any model
        (_bytes(999.4e6), "999 MB"),
        (_bytes(999.6e6), "1,000 MB"),
        (_bytes(999.7e9), "1,000 GB"),
        (_time(45.678), "45.68 s"),
        (_time(9999.6), "10,000 s"),
        (_time(1.0), "1 s"),
        (_time(0.0123456), "12.35 ms"),
        (_time(1.7e-21), "0 ms"),
    ],
)
def test_figures_have_no_exponents(told, words):
    assert told == words
