"""A search finds what planning every way by itself finds; and what the papers found by experience."""

import pytest

from simdist.cluster import Link, preset
from simdist.nn.shape import RECOMPUTATIONS
from simdist.parallel.pipeline import schedules
from simdist.planning import Job, Workbench, execute, planned, search, ways
from simdist.planning.memory import least_bytes, ordered_bytes
from simdist.planning.step import least_s, passes_s
from simdist.training import Config
from simdist.training.pipelines import is_updating

A100 = preset("a100")
GPT = {"model": "gpt", "layers": 6, "width": 512, "heads": 8, "context_bytes": 128, "vocabulary": 1024}
GPT |= {"global_batch_size": 16, "precision": "bf16"}


def with_memory(num_bytes):
    device = A100.device
    return A100.with_(device=type(device)("small", device.flops_per_s, device.memory_bytes_per_s, num_bytes))


WIDE = {"width": 4096, "context_bytes": 1024, "tp": 1, "global_batch_size": 96}  # nearly all of a step is computing


@pytest.mark.slow(but=2)
@pytest.mark.parametrize(
    ("num_bytes", "given"),
    [
        *((size, GPT | {"schedule": "1f1b"}) for size in (80e9, 3e8, 1.5e8)),
        (80e9, GPT | WIDE | {"pp": 1}),
        (80e9, GPT | WIDE | {"pp": 2, "schedule": "1f1b", "zero": 0}),
    ],
    ids=["all", "some", "few", "wide", "wide pipeline"],
)
def test_it_finds_what_is_there(num_bytes, given):
    bench = Workbench(with_memory(num_bytes), 4)
    found = search(given, bench)
    least, smallest = {}, {}
    for way in ways(given, 4, bench.cluster):
        for config in way:
            plan = planned(config, bench)
            mesh = tuple(plan.sizes.values())
            if plan.num_bytes <= num_bytes:
                least[mesh] = min(least.get(mesh, plan.step.seconds), plan.step.seconds)
            smallest[mesh] = min(smallest.get(mesh, plan.num_bytes), plan.num_bytes)
    assert [plan.step.seconds for plan in found.best] == sorted(least.values())
    assert {tuple(p.sizes.values()): p.num_bytes for p in found.too_large} == {
        mesh: size for mesh, size in smallest.items() if mesh not in least
    }
    assert len(least) + len(found.too_large) == len(smallest)


def test_the_smallest_is_found_though_another_seems_smaller():
    """If none fits. Bounds do not know how many micro-batches a schedule keeps."""
    given, bench = GPT | {"micro_batches": 4, "pp": 4}, Workbench(with_memory(1e6), 4)
    known = [(least_bytes(Job(c, bench)), planned(c, bench).num_bytes) for way in ways(given, 4, A100) for c in way]
    smallest = min(size for _, size in known)
    assert min(known)[1] > smallest
    assert [plan.num_bytes for plan in search(given, bench).too_large] == [smallest]


def test_less_memory_takes_more_time():
    given = GPT | {"micro_batches": 4}
    times = [search(given, Workbench(with_memory(size), 4)).best[0].step.seconds for size in (80e9, 1.5e8, 1e8)]
    assert times == sorted(times)
    assert times[0] < times[-1]


def test_nothing_fits():
    found = search(GPT | {"micro_batches": 4}, Workbench(with_memory(1e6), 4))
    assert found.best == []
    assert found.too_large[0].num_bytes == min(plan.num_bytes for plan in found.too_large) > 1e6


@pytest.fixture
def measured(monkeypatch):
    """By mesh and recomputation, how many windows the micro-batches had that were measured."""
    known, found = Workbench.anatomy, {}

    def anatomy(bench, config, num_windows):
        found.setdefault((config.dp, config.pp or 1, config.recompute), set()).add(num_windows)
        return known(bench, config, num_windows)

    monkeypatch.setattr(Workbench, "anatomy", anatomy)
    return found


def test_what_does_not_fit_is_not_tried_with_fewer_micro_batches(measured):
    """Of 1, 2, 4 … windows: each kind of way only with the smallest."""
    bench, given, seen = Workbench(with_memory(1e6), 2), GPT | {"zero": 0, "tp": 1}, []
    found = search(given, bench, lambda: seen.append(1))
    assert measured == {(dp, pp, how): {1} for dp, pp in ((2, 1), (1, 2)) for how in RECOMPUTATIONS}
    assert found.tried == len(seen) == len(list(ways(given, 2, bench.cluster)))


def test_more_is_recomputed_only_where_it_is_needed(measured):
    """With one window nothing has to be, with two selectively, with four all; eight do not fit at all."""
    given = GPT | {"width": 64, "vocabulary": 256, "zero": 0}
    search(given, Workbench(with_memory(1e7), 1))
    assert measured == {(1, 1, "none"): {1, 2}, (1, 1, "selective"): {2, 4}, (1, 1, "full"): {4, 8}}


@pytest.mark.slow(but=2)
@pytest.mark.parametrize(
    "given",
    [
        {"micro_batches": 4, "recompute": "none"},
        {"micro_batches": 4, "recompute": "selective", "clip_norm": 1.0, "precision": "float16"},
        *({"schedule": name, "micro_batches": 4, "recompute": "full"} for name in schedules() if not is_updating(name)),
        {"pp": 1, "tp": 1, "bucket_bytes": 100_000},
        {"pp": 1, "dp": 4, "width": 64, "recompute": "none"},
    ],
    ids=str,
)
def test_bounds_are_not_above_what_they_bound(given):
    bench = Workbench(A100.with_(devices_per_node=2), 4)
    for way in ways(GPT | given, 4, bench.cluster):
        for config in way:
            job, plan = Job(config, bench), planned(config, bench)
            assert passes_s(job) <= least_s(job) <= plan.step.seconds * (1 + 1e-12)
            assert least_bytes(job) <= ordered_bytes(job) <= plan.num_bytes


def test_what_saves_memory_is_tried_where_the_same_without_it_does_not_fit():
    given = GPT | {"tp": 2, "dp": 1, "zero": 0, "micro_batches": 2, "recompute": "full", "context_bytes": 1024}
    bench = Workbench(A100, 2)
    plain, parted = (search(given | {"sequence_parallel": on}, bench).best[0].num_bytes for on in (False, True))
    (plan,) = search(given, Workbench(with_memory((plain + parted) / 2), 2)).best
    assert plan.config.sequence_parallel and plan.num_bytes == parted < 0.9 * plain


def test_a_device_of_just_its_size_is_enough():
    given = GPT | {"dp": 1, "micro_batches": 4, "recompute": "none"}
    (plan,) = search(given, Workbench(with_memory(80e9), 1)).best
    for size, fits in ((plan.num_bytes, True), (plan.num_bytes - 1, False)):
        found = search(given, Workbench(with_memory(size), 1))
        assert (len(found.best), len(found.too_large)) == (int(fits), int(not fits))


def test_more_chunks_for_a_smaller_bubble():
    """Section 2.2.2 of Narayanan et al. 2021, arXiv 2104.04473: v chunks divide the bubble by v, for v times as many
    messages, of which a slow network makes the larger part of a step."""
    given = GPT | {"layers": 12, "width": 2048, "dp": 1, "tp": 1, "pp": 2, "schedule": "interleaved-1f1b"}
    given |= {"micro_batches": 2, "zero": 0, "recompute": "none"}
    near, far = A100, A100.with_(devices_per_node=1, between=Link(1e-6, 2e8))
    assert [search(given, Workbench(cluster, 2)).best[0].config.chunks for cluster in (near, far)] == [6, 2]


def test_tensor_parallelism_within_a_node_and_pipelines_between():
    """Takeaway 1 of Narayanan et al. 2021, arXiv 2104.04473: where a model needs more than one node's devices, tensor
    parallelism goes as far as the node and not beyond, and the pipeline from there on."""
    size = {"layers": 48, "width": 8192, "heads": 64, "context_bytes": 2048, "vocabulary": 51200}  # 39.1 B
    given = GPT | size | {"global_batch_size": 64, "micro_batches": 64, "dp": 1, "recompute": "full"}
    bench = Workbench(A100, 16)
    ways = ({"tp": 8, "schedule": "1f1b"}, {"tp": 16})
    inside, across = (search(given | way, bench).best[0].step.seconds for way in ways)
    assert inside < across


@pytest.mark.slow
def test_a_slow_network_wants_fewer_bytes_between_nodes():
    """With links between nodes a hundred times slower, copies of the model no longer lie on different nodes."""
    nodes = A100.with_(devices_per_node=4)
    slow = nodes.with_(between=Link(nodes.between.latency_s, nodes.between.bytes_per_s / 100))
    fast_best, slow_best = (search(GPT | {"context_bytes": 512}, Workbench(c, 8)).best[0] for c in (nodes, slow))
    assert fast_best.sizes["pp"] == 1
    assert slow_best.sizes["pp"] > 1


def test_nodes_that_a_slow_network_parts_have_a_model_each():
    """Zhang et al. 2022, MiCS, arXiv 2205.00119: in clouds. What is given of shards leaves the mesh open."""
    nodes = A100.with_(devices_per_node=4, nics_per_node=1, between=Link(5e-6, 5e9))
    given = GPT | {"tp": 1, "pp": 1, "zero": 3, "width": 1024}
    assert search(given, Workbench(nodes, 16)).best[0].config.shards == 4
    meshes = {plan.sizes["dp"] for plan in search(GPT | {"shards": 4, "zero": 3}, Workbench(nodes, 16)).best}
    assert meshes == {4, 8, 16}


def test_the_config_is_one_that_can_be_trained():
    bench = Workbench(A100, 4)
    plan = search(GPT, bench).best[0]
    assert execute(plan.config, bench).seconds == pytest.approx(plan.step.seconds, rel=0.03)


@pytest.mark.slow(but=4)
@pytest.mark.parametrize(
    ("settings", "change"),
    [
        ({}, {"width": 1024}),
        ({}, {"recompute": "full"}),
        ({}, {"precision": "float32"}),
        ({}, {"optimizer": "sgd"}),
        ({}, {"micro_batches": 2}),
        ({}, {"zero": 1}),
        ({}, {"tp": 2}),
        ({}, {"sp": 2}),
        ({"tp": 2}, {"sequence_parallel": True}),
        ({"sp": 2}, {"ulysses": True}),
        ({"experts": 4}, {"ep": 2}),
        ({"pp": 2, "micro_batches": 4}, {"pp": 4, "global_batch_size": 8}),
        ({"pp": 2, "micro_batches": 4}, {"micro_batches": 8, "global_batch_size": 32}),
        ({"pp": 2, "micro_batches": 4}, {"global_batch_size": 32}),
        ({"pp": 2, "micro_batches": 4}, {"recompute": "full"}),
        ({"pp": 2, "micro_batches": 4}, {"schedule": "zb-h1"}),
        ({"pp": 2, "micro_batches": 4, "schedule": "interleaved-1f1b", "chunks": 2}, {"chunks": 3}),
    ],
    ids=str,
)
def test_a_bench_tells_ways_apart(settings, change):
    """It measures each part once; what it knows of one way is not taken for another's."""
    bench, one, other = Workbench(A100, 4), GPT | settings, GPT | settings | change
    plans = [planned(Config(**each, device="phantom"), bench) for each in (one, other, one)]
    assert plans[0] == plans[2] and plans[0][2:] != plans[1][2:]
    assert plans[1] == planned(Config(**other, device="phantom"), Workbench(A100, 4))
