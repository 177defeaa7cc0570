"""A run on a mesh is the run of one rank: its lines, its checkpoints, and what its report says of traffic."""

from pathlib import Path

import numpy as np
import pytest
from checkpointing import shared
from harness import virtual

from simdist.errors import ArgumentError
from simdist.nn.formulas import num_parameters
from simdist.training import Config, Trainer, report
from simdist.training.models import shape

GPT = {"model": "gpt", "layers": 2, "width": 16, "heads": 4, "context_bytes": 12, "dropout": 0.1, "interval": 2}
GPT |= {"precision": "float64", "global_batch_size": 6, "steps": 6, "validation_windows": 10, "warmup_steps": 2}
GPT |= {"learning_rate": 0.01, "clip_norm": 0.5, "sample_bytes": 5, "temperature": 0.0}
CUT = 3  # in the middle of an interval
MESHES = [
    ({"tp": 2}, 2),
    ({"tp": 4, "sequence_parallel": True}, 4),
    ({"tp": 4, "sequence_parallel": True, "tp_overlap": True}, 4),
    ({"dp": 2, "tp": 2}, 4),
    ({"tp": 2, "sequence_parallel": True, "micro_batches": 2, "zero": 2}, 4),
    ({"dp": 2, "tp": 2, "zero": 3, "recompute": "selective"}, 4),
    ({"dp": 4, "tp": 2, "zero": 3, "shards": 2, "sequence_parallel": True}, 8),
    ({"sp": 2, "dp": 2}, 4),
    ({"sp": 2, "tp": 2, "ulysses": True}, 4),
]
EXPERTS = {"experts": 4, "top_k": 2, "group": 3, "capacity_factor": 1.0, "shared_experts": 1}
EXPERTS |= {"dense_layers": 1, "dense_ffn_width": 24}
ENOUGH = EXPERTS | {"capacity_factor": 4.0}  # of what is dropped nothing is kept, either
LLAMA = {"block": "llama", "kv_heads": 2, "head_width": 6, "ffn_width": 24, "qkv_bias": True}
LLAMA |= {"qk_norm": True, "rope_base": 100.0}
LATENT = {"block": "llama", "head_width": 6, "ffn_width": 24, "rope_width": 4, "kv_latent_width": 10}
DEEPSEEK = LATENT | EXPERTS | {"query_latent_width": 7}
every_mesh = pytest.mark.parametrize(("mesh", "p"), MESHES, ids=lambda told: str(told))


@pytest.fixture
def settings(text):
    return GPT | {"data": text}


def run(comm, settings, folder=None, resume=False):
    """The lines of a run, as far as they are of the training and not of its cost, and what it writes at the end."""
    trainer = Trainer(comm, Config(**settings), folder and Path(shared(comm, folder)))
    if resume:
        trainer.resume(trainer.checkpoints, CUT)
    lines = [[*line[:5], line.auxiliary_loss] for line in trainer.run() if line]
    return lines, [text.decode("latin") for _, text in trainer.samples()]


@pytest.mark.slow(but=1)
@pytest.mark.parametrize(
    "mesh",
    [
        {"tp": 2, "sp": 2},
        {"dp": 2, "tp": 2, "zero": 3},
        {"pp": 2, "sp": 2, "ulysses": True},
        {"ep": 2, "tp": 2, "experts": 4, "top_k": 2, "group": 3},
        DEEPSEEK | {"ep": 2, "tp": 2, "sequence_parallel": True},
        DEEPSEEK | {"pp": 2, "ep": 2, "schedule": "zb-h1", "micro_batches": 2},
        DEEPSEEK | {"dp": 2, "sp": 2, "ulysses": True, "zero": 3},
    ],
    ids=str,
)
def test_blocks_of_llamas(spmd, settings, mesh, tmp_path):
    """And of DeepSeek's."""
    model = {name: mesh[name] for name in (*EXPERTS, *DEEPSEEK) if name in mesh}
    model = model if "kv_latent_width" in mesh else LLAMA | model
    [(lines, written)] = spmd(run, 1, settings | model)
    folder = tmp_path / "run"
    for found, texts in spmd(run, 4, settings | model | {"checkpoint_every": CUT} | mesh, folder):
        np.testing.assert_allclose(found, lines, rtol=1e-10)
        assert texts == written
    for found, _ in spmd(run, 2, settings | model | {"tp": 2}, folder, True):
        np.testing.assert_allclose(found, lines[-2:], rtol=1e-10)


@pytest.mark.slow(but=2)
@pytest.mark.parametrize(
    "mesh",
    [
        {"ep": 2, "dp": 2},
        {"ep": 2, "dp": 2, "zero": 2, "shards": 1},
        {"ep": 2, "sp": 2, "ring_attention": True},
        {"ep": 2, "tp": 2},
        {"ep": 2, "tp": 2, "sequence_parallel": True, "recompute": "full", "micro_batches": 3},
    ],
    ids=str,
)
def test_experts(spmd, settings, mesh):
    [(lines, written)] = spmd(run, 1, settings | EXPERTS)
    for found, texts in spmd(run, 4, settings | EXPERTS | mesh):
        np.testing.assert_allclose(found, lines, rtol=1e-10)
        assert texts == written


LINE = {"pp": 2, "schedule": "1f1b", "micro_batches": 3}


@pytest.mark.slow(but=2)
@pytest.mark.parametrize(
    ("mesh", "p"),
    [
        (LINE | EXPERTS | {"ep": 2}, 4),
        (LINE | {"sp": 2}, 4),
        (LINE | {"sp": 2, "ulysses": True, "schedule": "zb-h1"}, 4),
        ({"dp": 2, "sp": 2, "tp": 2}, 8),
        (LINE | EXPERTS | {"ep": 2, "tp": 2, "sequence_parallel": True}, 8),
        pytest.param(LINE | EXPERTS | {"ep": 2, "sp": 2}, 8, marks=pytest.mark.slow),
        pytest.param(LINE | EXPERTS | {"dp": 2, "ep": 2, "zero": 1}, 8, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_axes_that_all_cut(spmd, settings, mesh, p):
    ranks = spmd if p <= 4 else virtual
    [(lines, written)] = ranks(run, 1, settings | (EXPERTS if "ep" in mesh else {}))
    for found, texts in ranks(run, p, settings | mesh):
        np.testing.assert_allclose(found, lines, rtol=1e-10)
        assert texts == written


def test_the_experts_own_loss_is_told_apart(spmd, settings):
    """At a learning rate that moves no weight, nothing else tells one weight of that loss from another."""
    [(lines, _)], [(without, _)] = (
        spmd(run, 1, settings | EXPERTS | {"balance": balance, "learning_rate": 1e-300}) for balance in (0.5, 0.0)
    )
    assert [line[:3] for line in lines] == [line[:3] for line in without]
    with_experts = GPT["layers"] - EXPERTS["dense_layers"]
    assert all(0.5 * with_experts < line[-1] < with_experts for line in lines)
    assert not any(line[-1] for line in without)


def test_the_report_says_the_same_of_the_experts_loads_in_every_layout(spmd, settings):
    def program(comm, mesh):
        trainer = Trainer(comm, Config(**settings | EXPERTS | mesh))
        line = [line for line in trainer.run() if line][-1]
        trace = trainer.trace()
        return trace and report(trainer, line, trace, comm.cluster).summary

    meshes = [({}, 1), ({"zero": 2}, 2), ({"ep": 2, "tp": 2}, 4)]
    words = [next(line for line in spmd(program, p, mesh)[0] if "experts: " in line) for mesh, p in meshes]
    assert words == words[:1] * len(meshes)
    assert "the busiest is asked for " in words[0] and "of choices are dropped" in words[0]


def test_the_experts_own_loss_goes_on_in_the_middle_of_an_interval(spmd, settings, tmp_path):
    [(lines, _)] = spmd(run, 1, settings | EXPERTS)
    spmd(run, 4, settings | EXPERTS | {"ep": 2, "tp": 2, "checkpoint_every": CUT}, tmp_path / "run")
    for found, _ in spmd(run, 4, settings | EXPERTS | {"ep": 2, "dp": 2}, tmp_path / "run", True):
        np.testing.assert_allclose(found, lines[-2:], rtol=1e-10)


@pytest.mark.slow(but=4)
@every_mesh
def test_the_same_run_as_on_one_rank(spmd, settings, mesh, p):
    [(lines, written)] = spmd(run, 1, settings)
    for found, texts in spmd(run, p, settings | mesh):
        np.testing.assert_allclose(found, lines, rtol=1e-10)
        assert texts == written


def test_it_goes_on_otherwise_than_it_began(spmd, settings, tmp_path):
    [(lines, _)] = spmd(run, 1, settings)
    spmd(run, 4, settings | {"dp": 2, "tp": 2, "checkpoint_every": CUT}, tmp_path / "run")
    for mesh, p in (({}, 1), ({"tp": 4}, 4), ({"tp": 2, "zero": 1}, 4)):
        for found, _ in spmd(run, p, settings | mesh, tmp_path / "run", True):
            np.testing.assert_allclose(found, lines[-2:], rtol=1e-10)


@pytest.mark.slow(but=4)
@pytest.mark.parametrize(
    ("mesh", "p"),
    [
        *MESHES,
        ({"sp": 2, "tp": 2, "sequence_parallel": True, "recompute": "full", "micro_batches": 3}, 4),
        ({"sp": 3, "heads": 3, "width": 15, "ulysses": True, "recompute": "selective", "precision": "bf16"}, 3),
        ({"sp": 2, "precision": "fp16", "micro_batches": 2}, 2),
        (ENOUGH | {"ep": 2, "tp": 2}, 4),
        (ENOUGH | {"ep": 2, "sp": 2}, 4),
        (ENOUGH | {"ep": 2, "width": 256}, 2),  # whose exchanges are by messages
        (ENOUGH | {"ep": 2, "tp": 2, "sequence_parallel": True, "tp_overlap": True}, 4),
        (LLAMA | {"sp": 2, "tp": 2, "sequence_parallel": True}, 4),
        (LLAMA | {"sp": 2, "tp": 2, "sequence_parallel": True, "tp_overlap": True, "logits": "untied"}, 4),
        (LLAMA | {"sp": 2, "dp": 2, "ulysses": True, "recompute": "selective"}, 4),
        (LATENT | {"sp": 2, "tp": 2}, 4),
        (DEEPSEEK | {"capacity_factor": 4.0, "ep": 2, "tp": 2, "sequence_parallel": True}, 4),
    ],
    ids=lambda told: str(told),
)
def test_the_report_predicts_what_the_record_shows(spmd, settings, mesh, p):
    config = Config(**settings | mesh)

    def program(comm):
        trainer = Trainer(comm, config)
        line = [line for line in trainer.run() if line][-1]
        trace = trainer.trace()
        if trace is None:
            return None
        told = report(trainer, line, trace, comm.cluster)
        return told.summary[0], [tuple(row) for row in told.rows]

    summary, rows = spmd(program, p)[0]
    cut = {axis: mesh[axis] for axis in ("tp", "sp", "ep") if axis in mesh}
    dp = p // np.prod(list(cut.values()))
    assert " x ".join([f"dp {dp}", *(f"{axis} {size}" for axis, size in cut.items())]) in summary
    assert summary.startswith(f"gpt, {num_parameters(shape(config)):,} parameters")
    words = ("bytes sent", "messages", "of activations", "of communication")
    exact = [row for row in rows if any(word in row[0] for word in words)]
    assert len(exact) == 4
    for row in exact:
        if spmd.num_nodes > 1 and row[0].startswith("peak bytes of communication"):
            measured, predicted = (int(words.replace(",", "")) for words in row[1:3])
            assert measured <= predicted, "as if what streams need for messages were needed at once"
        else:
            assert row[1] == row[2], row


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"tp": 3}, "4 heads on tp 3 leave 1 over; 4 heads go evenly on tp 1, 2, 4"),
        ({"tp": 8, "heads": 8, "context_bytes": 12, "sequence_parallel": True}, "12 tokens on tp 8 leave 4 over"),
        ({"sequence_parallel": True}, "sequence_parallel is on, and tp 1"),
        ({"tp": 2, "tp_overlap": True}, "tp_overlap is on, and sequence_parallel off; it is for tokens"),
        ({"tp": 2, "method": "server"}, "tp 2, and method server; needs ddp, dp, zero, fsdp"),
        ({"sp": 2, "ulysses": True, "ring_attention": True}, "ulysses and ring_attention are on; sp takes one of them"),
        ({"ulysses": True}, "ulysses is on, and sp 1; it is for sp of 2 and more"),
        ({"sp": 8, "ulysses": True}, "4 heads on sp 8 leave 4 over"),
        ({"ep": 2, "experts": 3}, "3 experts on ep 2 leave 1 over"),
        ({"sp": 2, "experts": 4}, "128 tokens in 4 runs would cut groups of 128"),
        ({"tp": 2, "optimizer": "lamb"}, "lamb, which needs the whole model"),
        ({"tp": 2, "optimizer": "muon"}, "tp 2, and optimizer muon, which needs whole matrices"),
        ({"tp": 2, "optimizer": "adamw8bit"}, "adamw8bit, which needs the whole model"),
        ({"ep": 2, "experts": 4, "optimizer": "adamw8bit"}, "adamw8bit, which needs the whole model"),
        ({"model": "mlp", "tp": 2}, "tp is for model gpt"),
    ],
)
def test_what_cannot_be(settings, given, message):
    with pytest.raises(ArgumentError, match=message):
        Config(**{"model": "gpt", "data": settings["data"]} | given)


def test_a_mesh_that_is_not_the_ranks(spmd, settings):
    def program(comm):
        with pytest.raises(ArgumentError, match="dp 2 x tp 4 = 8 ranks, but there are 3"):
            Trainer(comm, Config(**settings | {"dp": 2, "tp": 4}))
        with pytest.raises(ArgumentError, match="tp 2 = 2 ranks, but there are 3"):
            Trainer(comm, Config(**settings | {"tp": 2}))
        with pytest.raises(ArgumentError, match="dp 2 = 2 ranks, but there are 3"):
            Trainer(comm, Config(**settings | {"dp": 2}))

    spmd(program, 3)
