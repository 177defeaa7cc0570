"""What papers say of a plan: their formulas, and figures that they printed."""

import pytest

from simdist.cluster import Device, Link, preset
from simdist.planning import Workbench, planned
from simdist.planning.job import Job
from simdist.planning.papers import papers
from simdist.planning.step import sending_s, step
from simdist.training import Config

A100 = preset("a100")
GPT = {"model": "gpt", "layers": 4, "width": 512, "heads": 8, "context_bytes": 256, "vocabulary": 1024}
GPT |= {"precision": "bf16", "global_batch_size": 32, "device": "phantom"}


def said(ranks, **settings):
    bench, config = Workbench(A100, ranks), Config(**GPT | settings)
    plan = planned(config, bench)
    job = Job(config, bench)
    return job, plan, papers(job, plan.step, 0)


def test_the_operations_of_the_megatron_paper():
    """Narayanan et al. 2021, arXiv 2104.04473, table 1: 39.1 billion parameters on 512 A100 reach 138 TFLOP/s each
    with a batch of 1536, and so take 14.5 s a step."""
    size = {"layers": 48, "width": 8192, "heads": 64, "context_bytes": 2048, "vocabulary": 51200}
    mesh = {"tp": 8, "pp": 2, "micro_batches": 48, "recompute": "full", "global_batch_size": 1536}
    _, _, found = said(512, **size, **mesh)
    flops = 96 * 1536 * 2048 * 48 * 8192**2 * (1 + 2048 / (6 * 8192) + 51200 / (16 * 48 * 8192))
    assert found.computing_s == pytest.approx(flops / 512 / 312e12, rel=1e-12)
    assert found.computing_s * 312 / 138 == pytest.approx(14.5, rel=0.01)


def test_tensor_parallelism():
    """Each of four all-reduces of 2bsh (t-1)/t numbers, a block and micro-batch."""
    _, _, found = said(8, tp=4, micro_batches=2)
    windows = 32 // 2
    assert found.sharing_s == pytest.approx(4 * 4 * 2 * windows * 256 * 512 * 2 * 3 / 4 / 300e9, rel=1e-12)
    again = said(8, tp=4, micro_batches=2, recompute="full")[2]
    assert again.sharing_s == pytest.approx(1.5 * found.sharing_s, rel=1e-12)
    assert said(8)[2].sharing_s == 0


@pytest.mark.parametrize(("zero", "elements"), [(0, 2), (1, 2), (2, 2), (3, 3)])
def test_what_copies_send(zero, elements):
    job, _, found = said(8, zero=zero)
    weights = job.parts[0].size
    assert found.sending_s == pytest.approx(elements * weights * 7 / 8 * 2 / 300e9, rel=1e-12)
    more = {2: 1, 3: 3}.get(zero, 0)  # with each further micro-batch
    again = said(8, zero=zero, micro_batches=4)[2]
    assert again.sending_s == pytest.approx((elements + 3 * more) * weights * 7 / 8 * 2 / 300e9, rel=1e-12)


def test_what_goes_between_nodes_in_hybrid_sharding():
    """An all-reduce of a shard among four nodes; what the 8 ranks of each share stays inside."""
    job, _, found = said(32, zero=3, shards=8)
    num_bytes = 2 * job.parts[0].size
    between_s = 2 * num_bytes / 8 * 3 / 4 / A100.between.bytes_per_s
    assert found.sending_s == pytest.approx(3 * num_bytes * 7 / 8 / 300e9 + between_s, rel=1e-12)
    assert found.memory["parameters"] == num_bytes / 8


@pytest.mark.parametrize(("zero", "elements"), [(2, 2), (3, 3)])
def test_copies_that_no_micro_batch_passes_through_send_as_for_one(zero, elements):
    """Of Chimera's two pipelines, which give each rank all of the model, one is idle."""
    job, _, found = said(4, zero=zero, pp=2, micro_batches=1, schedule="chimera")
    assert found.sending_s == pytest.approx(elements * job.parts[0].size / 2 * 2 / 300e9, rel=1e-12)


@pytest.mark.parametrize("micro_batches", [1, 4])
@pytest.mark.parametrize(
    "mesh", [{}, {"zero": 1}, {"zero": 2}, {"zero": 3}, {"zero": 2, "shards": 4}, {"zero": 3, "shards": 4}, {"sp": 2}]
)
def test_where_only_bytes_take_time_sending_takes_as_long_as_papers_say(mesh, micro_batches):
    """They leave out latencies, and the additions of a reduction."""
    links = {name: Link(0.0, getattr(A100, name).bytes_per_s) for name in ("inside", "between")}
    cluster = A100.with_(device=Device("quick", 1e20, 1e20, 80e9), **links)
    job = Job(Config(**GPT | mesh | {"micro_batches": micro_batches}), Workbench(cluster, 8))
    assert sending_s(job, 0) == pytest.approx(papers(job, step(job), 0).sending_s, rel=0.03)


def test_gradients_of_shared_weights_are_sent_too():
    """With dp 1, ranks of ep still sum the gradients of all weights but the experts'."""
    job, plan, found = said(4, ep=4, experts=4)
    own = ("experts.hidden", "experts.thought")
    shared = sum(size for name, size in job.parts[0].weights.items() if not any(part in name for part in own))
    assert 0 < shared < job.parts[0].size
    assert found.sending_s == pytest.approx(2 * shared * 3 / 4 * 2 / 300e9, rel=1e-12)
    assert sending_s(job, 0) == pytest.approx(job.group("ep").seconds("all_reduce", 2 * shared), rel=1e-12)
    assert plan.step.gradients_s >= sending_s(job, 0)


def test_the_bubble_is_a_share_of_the_passes():
    _, plan, found = said(4, pp=4, micro_batches=8)
    assert found.bubble_s == pytest.approx(plan.step.passes_s * 3 / 8, rel=1e-12)
    assert said(8)[2].bubble_s == 0
    for schedule in ("zb-h1", "zb-h2"):
        assert said(4, pp=4, micro_batches=2, schedule=schedule)[2].bubble_s is None, "too few to fill the pipeline"


def test_memory_of_zero():
    """16 bytes a weight of mixed precision; divided by the stages."""
    for zero, bytes_a_weight in ((0, 16), (1, 4 + 12 / 8), (2, 2 + 14 / 8), (3, 16 / 8)):
        job, _, found = said(8, zero=zero)
        weights = sum(found.memory[name] for name in ("parameters", "gradients", "optimizer state"))
        assert weights == pytest.approx(bytes_a_weight * job.parts[0].size, rel=1e-12)


def test_memory_of_activations():
    """sbh (34 + 5as/h) bytes a layer, and around them sbh + 4sbh (1 + V/h)."""
    each, around = 256 * 512 * (34 + 5 * 8 * 256 / 512), 256 * 512 * (1 + 4 * (1 + 1024 / 512))
    assert said(8, micro_batches=4)[2].memory["activations"] == pytest.approx(4 * each + around)
    masks = 256 * 512 * (2 + 5 * 8 * 256 / 512 / 5), 256 * 512  # of one byte, whatever numbers have
    longer = 2 * (4 * (each - masks[0]) + around - masks[1] - 4 * 256 * 1024) + 4 * masks[0] + masks[1] + 4 * 256 * 1024
    assert said(8, micro_batches=4, precision="float32")[2].memory["activations"] == pytest.approx(longer)


@pytest.mark.parametrize(("schedule", "kept"), [("1f1b", 4), ("gpipe", 8), ("zb-h2", 7)])
def test_memory_of_a_pipeline(schedule, kept):
    """On the first of four stages, as its schedule's paper counts micro-batches of a mean stage."""
    job, _, found = said(4, pp=4, micro_batches=8, schedule=schedule)
    mean = sum(stage.levels["F"].after for stage in job.stages) / 4
    assert found.memory["activations"] == pytest.approx(kept * mean, rel=1e-12)


def test_of_activations_where_ranks_share_windows_they_say_nothing():
    assert "activations" not in said(8, sp=2)[2].memory


def test_of_experts_they_say_nothing():
    found = said(4, experts=4)[2]
    assert found.computing_s is None
    assert found.sharing_s is None
    assert "activations" not in found.memory
