"""All ways, no other ways, and what is given in each of them."""

from dataclasses import replace
from math import prod

import pytest

from simdist.cluster import preset
from simdist.errors import ArgumentError
from simdist.planning import SCHEDULES, ways
from simdist.planning.scope import MOST_MICRO_BATCHES, MOST_TOKENS
from simdist.planning.space import LONG
from simdist.training.models import sized

H100 = preset("h100")
GPT = {"model": "gpt", "layers": 6, "width": 64, "heads": 8, "context_bytes": 32, "global_batch_size": 16}

# What a setting without use stands for.
_UNUSED = {"pp": 1, "offload": "none", "zero": 0, "shards": 0, "sequence_parallel": False, "ulysses": False}


def found(ranks, **given):
    return [way[0] for way in ways(GPT | given, ranks, H100)]


def mesh(config):
    return config.dp, config.tp, config.pp or 1


def test_every_mesh_of_eight_is_among_them():
    meshes = {mesh(config) for config in found(8)}
    every = {(dp, tp, 8 // dp // tp) for dp in (1, 2, 4, 8) for tp in (1, 2, 4, 8) if 8 % (dp * tp) == 0}
    assert meshes == every


def test_names_in_other_spellings_leave_the_same_ways():
    plain, spelled = {"method": "pipeline", "schedule": "zb-h1"}, {"model": "GPT", "method": "Pipeline"}
    assert found(4, **plain) == found(4, **spelled, schedule="ZB-1p")
    assert list(ways(GPT | {"model": "GPT", "method": "DDP"}, 2, H100)) == list(ways(GPT | {"method": "ddp"}, 2, H100))


def test_of_a_mesh_every_way_is_among_them():
    told = [(c.zero, c.schedule, c.micro_batches, bool(c.sequence_parallel)) for c in found(4) if mesh(c) == (2, 2, 1)]
    assert len(set(told)) == len(told) == 4 * 4 * 2  # stages, micro-batches of 1, 2, 4 and 8 windows, both regions
    told = [(c.zero, c.schedule, c.micro_batches) for c in found(4) if mesh(c) == (2, 1, 2)]
    assert set(told) == {(zero, name, m) for zero in (0, 1) for name in SCHEDULES for m in (1, 2, 4, 8)}
    assert {c.pp for c in found(4, schedule="1f1b", tp=1)} == {2, 4}, "one stage needs none"
    told = [c.micro_batches for c in found(1, global_batch_size=24, zero=0)]
    assert told == [24, 12, 8, 6, 4, 3, 2, 1], "where the most do not fit, fewer do not"


def test_shards_of_a_node_are_among_them():
    told = {(c.zero, c.shards or 0) for c in found(32) if mesh(c) == (16, 2, 1)}
    assert told == {(0, 0), *((zero, shards) for zero in (1, 2, 3) for shards in (0, 4))}
    assert {c.shards or 0 for c in found(8)} == {0}  # all in one node
    assert {c.shards or 0 for c in found(32, zero=3) if mesh(c) == (16, 2, 1)} == {0, 4}
    assert {c.shards or 0 for c in found(32, method="fsdp") if mesh(c) == (16, 2, 1)} == {0, 4}
    assert {c.shards or 0 for c in found(32, zero=3, tp=8)} == {0}, "of a node there is one"
    assert {c.shards or 0 for c in found(24, zero=1, pp=2, tp=1, global_batch_size=24)} == {0}, "12 are not whole nodes"
    assert {c.shards or 0 for c in found(32, zero=3, shards=2) if mesh(c) == (16, 2, 1)} == {2}
    assert {c.shards or 0 for c in found(32, zero=3, sp=2, tp=1)} == {0, 4}, "next to each other, and two for each"


@pytest.mark.parametrize(
    ("method", "stages"), [("ddp", {0}), ("dp", {0}), ("zero", {1, 2}), ("fsdp", {3}), ("pipeline", {0, 1})]
)
def test_a_method_has_its_stages(method, stages):
    assert {c.zero or 0 for c in found(4, method=method, tp=1)} == stages


def test_each_way_comes_with_what_it_may_recompute():
    for way in ways(GPT, 2, H100):
        assert [config.recompute for config in way] == ["none", "selective", "full"]
        assert [replace(config) for config in way] == way, "as if made and checked one by one"
    assert {len(way) for way in ways(GPT | {"recompute": "selective"}, 2, H100)} == {1}
    for way in ways(GPT | {"flash_attention": True}, 2, H100):
        assert [config.recompute for config in way] == ["none", "full"], "nothing is left for selective"


@pytest.mark.slow(but=4)
@pytest.mark.parametrize(
    "given",
    [
        {"tp": 2},
        {"pp": 2},
        {"dp": 4},
        {"zero": 1},
        {"zero": 3},
        {"zero": 3, "shards": 1},
        {"zero": 0, "shards": 0},
        {"schedule": "dualpipe-v"},
        {"micro_batches": 4},
        {"sequence_parallel": True},
        {"sequence_parallel": False},
        {"recompute": "full"},
        {"optimizer": "sgd"},
        {"pp": 4, "chunks": 2, "schedule": "interleaved-1f1b"},
        {"sp": 2, "ulysses": True},
        {"sp": 2, "ulysses": False},
        {"experts": 4, "ep": 2},
        {"method": "dp"},
        {"method": "pipeline"},
        {"pp": 1},
        {"offload": "none"},
    ],
    ids=str,
)
def test_what_is_given_is_fixed(given):
    configs = found(8, **given)
    assert configs
    for config in configs:
        assert {name: getattr(config, name) or _UNUSED[name] for name in given} == given
        assert config.device == "phantom"
        axes = (max(getattr(config, axis) or 1, 1) for axis in ("dp", "tp", "pp", "sp", "ep"))
        assert prod(axes) == 8


def test_what_is_given_without_effect_leaves_all_ways_open():
    assert found(2, offload="none", shards=0) == found(2)


def test_tensor_parallelism_stays_within_a_node():
    small = H100.with_(devices_per_node=2)
    assert {way[0].tp for way in ways(GPT, 8, small)} == {1, 2}
    assert {way[0].tp for way in ways(GPT | {"tp": 4}, 8, small)} == {4}


def test_experts_are_split_by_all_that_divides_them():
    found_ep = {(c.ep, c.tp) for c in found(8, experts=6, zero=0)}
    assert found_ep == {(ep, tp) for ep in (1, 2) for tp in (1, 2, 4, 8) if ep * tp <= 8}
    assert {c.ep for c in found(16, experts=64, tp=1, pp=1, zero=0)} == {1, 2, 4, 8}, "within a node"
    assert {c.ep for c in found(16, experts=64, tp=1, pp=1, zero=0, ep=16)} == {16}
    assert {c.ep for c in found(8, zero=0)} == {1}
    for c in found(8, experts=4, pp=1, zero=0):
        assert c.global_batch_size % (c.dp * c.ep * c.micro_batches) == 0, "each has windows of its own"


def test_long_windows_are_split_both_ways():
    long = {"context_bytes": LONG, "pp": 1, "zero": 0, "micro_batches": 1}
    ways_of_sp = {(c.sp, c.ulysses) for c in found(8, tp=1, **long)}
    assert ways_of_sp == {(1, False), *((sp, ulysses) for sp in (2, 4, 8) for ulysses in (False, True))}
    assert {c.tp * c.sp for c in found(16, **long)} == {1, 2, 4, 8}, "within a node"
    assert {c.sp for c in found(16, tp=4, **long)} == {1, 2}, "together with what is given"
    assert {(c.sp, c.ulysses) for c in found(8, tp=1, ulysses=True, **long)} == {(2, True), (4, True), (8, True)}
    short = long | {"context_bytes": LONG // 2, "tp": 1}
    assert {c.sp for c in found(8, **short)} == {c.sp for c in found(8, ulysses=False, **short)} == {1}
    assert {c.sp for c in found(8, ring_attention=True, **short)} == {2, 4, 8}, "if it is asked for"


def test_a_published_model_has_the_ways_of_its_sizes():
    """Of its experts, and its windows, which are long."""
    given = {"global_batch_size": 16, "layers": 6, "group": 4096}
    named = [way[0] for way in ways(given | {"model": "mixtral-8x7b"}, 4, H100)]
    assert {config.ep for config in named} == {1, 2, 4} == {config.sp for config in named}
    assert named == [way[0] for way in ways(given | sized({"model": "mixtral-8x7b"} | given), 4, H100)]


def test_a_batch_of_any_size_has_finitely_many_ways():
    batch = 2**11 * 5**7  # of which one micro-batch for each window would be timed for years
    counts = {c.micro_batches for c in found(4, dp=4, global_batch_size=batch)}
    assert counts == {2**k for k in range(7, 10)}, "of the 2^9 5^7 windows of a rank: not 5^7, and not too few"
    counts = {c.micro_batches for c in found(1, zero=0, global_batch_size=3 << 20)}
    fewest = (3 << 20) * GPT["context_bytes"] // MOST_TOKENS
    assert counts == {part << k for part in (1, 3) for k in range(15) if fewest <= part << k <= MOST_MICRO_BATCHES}


def test_chunks_that_divide_the_blocks_of_a_rank():
    of = {"tp": 1, "zero": 0, "micro_batches": 4, "schedule": "interleaved-1f1b", "layers": 24}
    found_chunks = {(c.pp, c.chunks) for c in found(4, **of)}
    assert found_chunks == {(2, 2), (2, 3), (2, 4), (2, 6), (2, 12), (4, 2), (4, 3), (4, 6)}
    assert {(c.pp, c.chunks) for c in found(4, chunks=5, **of)} == {(2, 5), (4, 5)}
    assert {c.chunks for c in found(4, pp=4, **of | {"layers": 10})} == {2}
    assert {c.chunks for c in found(4, **of | {"schedule": "1f1b"})} == {None}


def test_an_mlp_has_fewer_ways():
    configs = list(ways({"model": "mlp", "global_batch_size": 64}, 4, H100))
    assert {len(way) for way in configs} == {1}
    assert {(way[0].dp, way[0].pp or 1) for way in configs} == {(4, 1), (2, 2), (1, 4)}


@pytest.mark.parametrize(
    ("ranks", "given", "message"),
    [
        (11, {}, "no way to train on 11 ranks: pp is 11; this gpt has 8 layers.*; 16 windows .* by 11 ranks"),
        (8, {"tp": 3}, "no way to train on 8 ranks: dp 2 x pp 1 x 3 that share layers are 6 ranks"),
        (12, {"tp": 3}, "no way to train on 12 ranks: 3 ranks that share layers do not fill nodes of 8 devices"),
        (4, {"dp": 4, "global_batch_size": 1}, "no way to train on 4 ranks: 1 window cannot be shared evenly by 4"),
        (8, {"dp": 8, "global_batch_size": 12}, "no way to train on 8 ranks: 12 windows cannot be shared evenly by 8"),
        (8, {"pp": 1, "schedule": "1f1b"}, "no way to train on 8 ranks: schedule is 1f1b, and pp 1"),
        (8, {"dp": 4, "tp": 2, "shards": 3}, "no way to train on 8 ranks: dp 4 is not a multiple of shards 3"),
        (8, {"tp": 16}, "no way to train on 8 ranks: dp 1 x pp 1 x 16 that share layers are 16 ranks"),
        (8, {"offload": "optimizer"}, "offload is optimizer; plans are of offload none"),
        (8, {"compress": "top-k"}, "compress is top-k; plans are of compress none"),
        (4, {"dp": 4, "micro_batches": 3}, "4 windows of a rank do not split evenly into 3 micro-batches"),
        (8, {"schedule": "pipedream"}, "schedule is pipedream; plans are of those that update after"),
        (8, {"method": "async"}, "method is async; plans are of method ddp, dp, zero, fsdp, pipeline"),
        (8, {"tp": 0}, "tp is 0; needs at least 1"),
        (8, {"pp": 0}, "pp is 0; needs at least 1"),
        (8, {"tp": -2}, "tp is -2; needs at least 1"),
        (8, {"micro_batches": 0}, "micro_batches is 0; needs at least 1"),
        (8, {"micro_batches": 10**9}, "^micro_batches is 1000000000; plans are of at most 16,384$"),
        # A sample of such a text did not fit in the memory of the machine that planned.
        (
            8,
            {"global_batch_size": 10**12},
            "no way to train on 8 ranks: 244,140,625 windows in a micro-batch are 7,812,500,000 tokens; "
            "plans are of at most 16,777,216",
        ),
        (8, {"global_batch_size": 1 << 30, "dp": 8, "micro_batches": 64}, "2,097,152 windows .* are 67,108,864 tokens"),
        (8, {"dp": -1}, "dp is -1; needs at least 0"),
        (8, {"sp": 0}, "sp is 0; needs at least 1"),
        (8, {"ep": 0}, "ep is 0; needs at least 1"),
        (8, {"width": 60}, "no way to train on 8 ranks: width is 60 and heads is 8; needs a multiple of the heads$"),
        (8, {"zero": 7}, "^zero is 7; needs at least 0 and less than 4$"),
        (8, {"layers": 10**26}, "^layers is 1(0{26}); needs at least 0 and less than 10,000$"),  # it tried all chunks
        (8, {"layers": "many"}, "^layers in a config is 'many'; needs a whole number$"),
        (8, {"global_batch_size": 1.5}, "^global_batch_size in a config is 1.5; needs a whole number$"),
        (8, {"schedule": 3}, "^schedule in a config is 3; needs a string$"),
    ],
)
def test_what_cannot_be(ranks, given, message):
    with pytest.raises(ArgumentError, match=message):
        list(ways(GPT | given, ranks, H100))
