import re

import numpy as np
import pytest

import simdist as sd
from simdist.arrays import phantom
from simdist.asynchronous import Exponential, circulant, graphs
from simdist.asynchronous.parameter_server import BoundedStaleness, Layout, ParameterServer
from simdist.bench.measure import bus_bytes_per_s
from simdist.cluster import fat_tree, nccl_link, preset
from simdist.collectives import barrier, cost, formula
from simdist.comm import Mesh
from simdist.data import Batches, Corpus
from simdist.errors import (
    ArgumentError,
    own_line,
    require_least,
    require_more,
    require_share,
    require_takes,
    require_whole,
)
from simdist.nn import Embedding, Linear, Shape, formulas, gpt, mlp
from simdist.nn.functional import balance, z_loss
from simdist.optim import Adam, AdamW, AdamW8bit, Schedule
from simdist.parallel import DataParallel, compression, optimizer, pipeline
from simdist.parallel.compression import TopK
from simdist.parallel.compression.formulas import blockwise_bits, qsgd_bits
from simdist.parallel.expert import check_experts, exchange_elements
from simdist.parallel.pipeline.formulas import formula as pipeline_formula
from simdist.parallel.sequence import ulysses_elements
from simdist.parallel.zero import formulas as zero
from simdist.parallel.zero import infinity
from simdist.planning import Workbench, execute, planned, search, ways
from simdist.plots import timeline, timeline_page, traffic
from simdist.training import Config, methods


def fits_none():
    """Takes none of the arguments that are given to what is registered."""


@pytest.mark.parametrize(
    ("register", "called"),
    [
        (compression.named("own", share=0.5), "compression own is called with (like, parameters, share=…)"),
        (optimizer("own", learning_rate=0.1), "optimizer own is called with (recipe, like, matrices, combine)"),
        (pipeline.named("own"), "schedule own is called with (stages=…, micro_batches=…)"),
        (methods.named("own"), "method own is called with (model, comm, config)"),
        (graphs.named("own"), "graph own is called with (ranks)"),
    ],
)
def test_what_is_registered_can_be_called(register, called):
    with pytest.raises(ArgumentError, match=re.escape(f"what makes {called}; this one cannot be: ")):
        register(fits_none)


@pytest.mark.parametrize("register", [compression.named, optimizer, pipeline.named, methods.named, graphs.named])
def test_a_decorator_without_a_name_is_refused(register):
    """It would register nothing, and leave a decorator in the function's place."""
    with pytest.raises(ArgumentError, match=r"<function fits_none at .*>: needs a name, such as 'mine', before"):
        register(fits_none)


def test_an_argument_that_nobody_gives():
    require_takes("x", lambda a, b=2, *, c: 0, "a", c=1)
    require_takes("x", dict, "a")  # which does not say what it takes
    require_takes("x", lambda a, *, c: 0, "a")  # others may be given with its name
    with pytest.raises(
        ArgumentError, match=r"what makes x is called with \(a, d=…\); this one cannot be: got an unexp"
    ):
        require_takes("x", lambda a, *, c: 0, "a", d=1)


@pytest.mark.parametrize("value", ["3", None, [3], 1j, True])
@pytest.mark.parametrize("require", [require_least, require_more, require_share, require_whole])
def test_what_is_no_number_is_within_no_limits(require, value):
    with pytest.raises(ArgumentError, match=f"x is {re.escape(repr(value))}; needs a (whole )?number"):
        require("x", value, *([] if require is require_share else [0]))


def test_whole_numbers_may_be_numpys():
    require_whole("x", np.int64(3), 3)
    with pytest.raises(ArgumentError, match="x is 3.0; needs a whole number of at least 3"):
        require_whole("x", 3.0, 3)
    with pytest.raises(ArgumentError, match="x is 2; needs at least 3"):
        require_whole("x", 2, 3)


def give_way(comm):
    pass


RUN, MET = sd.run(give_way, 1), sd.run(barrier, 2)
BENCH = Workbench("h100", 4)
FLAT = np.zeros(8)
TEXT = Corpus(np.zeros(1000, np.uint8), "zeros")


@pytest.mark.parametrize(
    ("call", "fault"),
    [
        (lambda: Mesh(3), "comm is 3; needs a Communicator"),
        (lambda: Shape(2, 16, 2, 8, dropout=float("nan")), "dropout is nan; needs at least 0 and less than 1"),
        (lambda: Shape(2, None, 2, 8), "width is None; needs a whole number"),
        (lambda: Shape(2, 16, 2, 8, rope_base="x"), "rope_base is 'x'; needs a number"),
        (lambda: Shape(2, 16, 2, 8, experts=4, capacity_factor=float("nan")), "capacity_factor is nan; needs more th"),
        (lambda: Shape(2, 16, 2, 8, experts=4, alpha=float("nan")), "alpha is nan; needs at least 0"),
        (lambda: Shape(2.5, 16, 2, 8), "layers is 2.5; needs a whole number"),
        (lambda: AdamW(FLAT, betas=3), "betas is 3; needs two numbers"),
        (lambda: Adam(FLAT, betas=(0.9,)), r"betas is \(0.9,\); needs two numbers"),
        (lambda: Linear("a", -3, 4), "in_features is -3; needs at least 1"),
        (lambda: Linear("a", 3, 2.5), "a size of a.w is 2.5; needs a whole number"),
        (lambda: Embedding("a", "many", 4), "a size of a.table is 'many'; needs a whole number"),
        (lambda: Adam([1.0, 2.0]), r"weights \[1.0, 2.0\]; needs one flat vector"),
        (lambda: AdamW8bit(FLAT, block=2.5), "block is 2.5; needs a whole number of at least 1"),
        (lambda: Schedule(1.0, 5, floor="x"), "floor is 'x'; needs a number"),
        (lambda: Schedule(1.0, float("nan")), "steps is nan; needs at least 1"),
        (
            lambda: sd.run(lambda: 3),
            "called with a communicator; this one cannot be: too many positional",
        ),
        (lambda: sd.run(give_way, args=(1,)), "called with a communicator and 1 argument of args; this one"),
        (lambda: timeline(RUN), "trace is <run of .*>; needs a Trace, such as sd.run"),
        (lambda: timeline_page(RUN), "trace is <run of .*>; needs a Trace"),
        (lambda: traffic(RUN), "trace is <run of .*>; needs a Trace"),
        (lambda: planned({"model": "gpt"}, BENCH), r"config is {'model': 'gpt'}; needs a Config, such as Config\(mod"),
        (lambda: planned(Config(), "h100"), "bench is 'h100'; needs a Workbench, such as Workbench"),
        (lambda: execute({}, BENCH), "config is {}; needs a Config"),
        (lambda: search({}, "h100"), "bench is 'h100'"),
        (lambda: search(Config(), BENCH), r"given is Config\(\); needs a Mapping, such as {"),
        (lambda: search({"batch": 4}, BENCH), "unknown setting 'batch': it is called global_batch_size"),
        (lambda: Workbench("h100", 2.5), "ranks is 2.5; needs a whole number"),
        (lambda: BENCH.cluster.with_(bandwidth=3), "unknown field of a cluster 'bandwidth'"),
        (lambda: pipeline.schedule("1f1b", 8 / 2, 4), "1f1b with stages=4.0; needs a whole number"),
        (lambda: pipeline.schedule("1f1b", None, 4), "1f1b with stages=None; needs a whole number"),
        (lambda: pipeline.schedule(4, 4, 4), "name of a schedule is 4; needs a str, such as '1f1b'"),
        (lambda: pipeline.simulate(pipeline.schedule("1f1b", 2, 2), 3), "times is 3; needs a Times"),
        (lambda: pipeline.Times(communication=None, forward="x"), "forward is 'x'; needs a number"),
        (lambda: pipeline.Memory(backward="x"), "backward is 'x'; needs a number"),
        (lambda: pipeline.Weights("2bw", 1.5), "group is 1.5; needs a whole number"),
        (lambda: pipeline.split([1, None], 1), r"costs\[1\] is None; needs a number"),
        (lambda: pipeline.terapipe_s([1, "x"], 2), r"slices_s\[1\] is 'x'; needs a number"),
        (lambda: blockwise_bits(8, 2048), "scales has 2048; needs pairs of items and bits"),
        (lambda: TopK(FLAT, share="x"), "share is 'x'; needs a number"),
        (lambda: check_experts(Shape(2, 16, 2, 8, experts=4), 0), "ep is 0; needs at least 1"),
        (lambda: graphs.ring("4"), "ranks is '4'; needs a number"),
        (lambda: graphs.complete(2.5), "ranks is 2.5; needs a whole number"),
        (lambda: circulant(4, [1.5]), r"hops is \[1.5\]; needs a sequence of whole numbers"),
        (lambda: Exponential().first_s("1", 4), "k is '1'; needs a number"),
        (lambda: Exponential().next_s(float("nan"), 4), "k is nan; needs at least 0"),
        (lambda: BoundedStaleness("3"), "staleness is '3'; needs a number"),
        (lambda: Layout(4, 1.5, 8), "num_servers is 1.5; needs a whole number"),
        (lambda: ParameterServer(deadline_s="x"), "deadline_s is 'x'; needs a number"),
        (lambda: z_loss("x"), r"z is a str of shape None; needs an array of shape \(tokens, experts\)"),
        (lambda: balance(FLAT, FLAT, FLAT, 2), r"p is a.* of shape \(8,\); needs an array of shape"),
        (lambda: balance(FLAT.reshape(2, 4), FLAT, FLAT, 1.5), "groups is 1.5; needs a whole number of at least 1"),
        (lambda: timeline(MET.trace, start_s="0"), "start_s is '0'; needs a number"),
        (lambda: timeline(MET.trace, width=None), "a figure None inches wide cannot be read"),
        (lambda: next(ways({}, "4", preset("h100"))), "ranks is '4'; needs a whole number"),
        (lambda: gpt("gpt2"), r"shape is 'gpt2'; needs a Shape, such as published\('gpt2'\)"),
        (lambda: mlp(4, 4, 8, 1.5), "hidden_layers is 1.5; needs a whole number"),
        (lambda: mlp(4, 4, 8, 1).forward(np.zeros((2, 9), np.uint8)), "windows of 9 bytes; this model needs 5"),
        (lambda: mlp(4, 4, 8, 1).forward(np.zeros((2, 5))), r"windows are float64 of shape \(2, 5\); needs uint8"),
        (lambda: mlp(4, 4, 8, 1).forward(3), r"windows are 3; needs uint8 of shape \(n, length\), and"),
        (lambda: TEXT.split(5, float("nan"), 0), "validation_share is nan; needs at least 0"),
        (lambda: TEXT.split(5, 0.1, -1), "seed is -1; needs at least 0"),
        (lambda: Batches(TEXT.split(5, 0.1, 0)[0], 4, 0).part(0, 5, 1), "rank is 5 of 1; needs at least 0 and less"),
        (lambda: Schedule(1.0, 5)(-1), "step is -1; needs at least 0"),
        (lambda: phantom(2.5), "an array of shape 2.5; needs a whole number, or a tuple of them"),
        (lambda: phantom(True), "an array of shape True; needs a whole number, or a tuple of them"),
        (lambda: cost("all_reduce", "ring", ranks=10**30, num_bytes=8), r"ranks is 10+; needs less than 2\*\*63"),
        (lambda: formula("all_reduce", "ring", ranks=4, num_bytes=10**400), r"num_bytes is 10+; needs less than"),
        (lambda: cost("all_reduce", "ring", ranks=float("inf"), num_bytes=8), "ranks is inf; needs a whole number"),
        (lambda: compression.compressor(["top-k"], FLAT, ()), r"unknown compression \['top-k'\]"),
        (lambda: cost("all_reduce", "ring", ranks="4", num_bytes=8), "ranks is '4'; needs a whole number"),
        (
            lambda: sd.run(lambda comm: DataParallel(mlp(4, 4, 8, 1), comm, "adamw", 0)),
            "recipe is 'adamw'; needs a Recipe",
        ),
        (lambda: sd.run(lambda comm: comm.exchange(3)), r"a note 3 on rank 0: needs a text, such as repr\(3\)"),
        (lambda: sd.run(lambda comm: comm.empty("3", float)), "empty on rank 0: an array of shape '3'; needs"),
        (lambda: sd.run(lambda comm: comm.empty(3, "nope")), "empty on rank 0: data type 'nope' not under"),
    ],
)
def test_what_is_of_another_kind_is_told_by_its_name(call, fault):
    """Not by an AttributeError or a TypeError from within."""
    with pytest.raises(ArgumentError, match=fault):
        call()


def test_ranks_may_be_a_number_of_8_bits():
    """30 KiB times 100 of NumPy's overflowed."""
    assert sd.run(lambda comm: comm.size, np.int8(100)).results == [100] * 100


@pytest.mark.parametrize("require", [require_least, require_more, require_share])
def test_nan_is_within_no_limits(require):
    with pytest.raises(ArgumentError, match="x is nan; needs "):
        require("x", float("nan"), *([] if require is require_share else [0]))


GPT2 = Shape(layers=12, width=768, heads=12, context=1024, vocabulary=50257)
FORMULAS = [
    (bus_bytes_per_s, {"operation": "all_reduce", "ranks": 4, "num_bytes": 1 << 30, "seconds": 2}),
    (
        formulas.kv_cache_bytes,
        {"shape": GPT2, "tokens": 1 << 30, "item_bytes": 2, "window": 1 << 20, "whole_every": 2},
    ),
    (formulas.matmul_flops, {"shape": GPT2, "sequences": 1 << 10}),
    (formulas.model_flops, {"shape": GPT2, "sequences": 1 << 10}),
    (
        formulas.training_flops,
        {"parameters": 1 << 30, "tokens": 1 << 30, "layers": 96, "width": 12288, "context": 1024},
    ),
    (formulas.megatron_parameters, {"layers": 96, "width": 12288, "vocabulary": 51200, "context": 2048}),
    (formulas.megatron_training_s, {"parameters": 1 << 30, "tokens": 1 << 30, "flops_per_s": 1 << 30}),
    (zero.paper_bytes, {"weights": 1 << 30, "ranks": 64, "zero_stage": 2}),
    (zero.paper_elements, {"weights": 1 << 30, "ranks": 64, "zero_stage": 3, "shards": 8, "micro_batches": 4}),
    (zero.offloaded_bytes, {"weights": 1 << 30, "ranks": 4}),
    (infinity.efficiency, {"intensity": 1 << 20, "bytes_per_s": 1 << 30, "flops_per_s": 1 << 30}),
    (pipeline_formula, {"name": "zb-h1", "stages": 4, "micro_batches": 8, "times": pipeline.Times()}),
    (qsgd_bits, {"items": 1 << 30, "levels": 1 << 20}),
    (exchange_elements, {"tokens": 1 << 30, "width": 64, "ranks": 4, "top_k": 2}),
    (ulysses_elements, {"tokens": 1 << 30, "width": 64, "ranks": 4, "kv_width": 16}),
]


@pytest.mark.parametrize(("formula", "given"), FORMULAS, ids=lambda each: getattr(each, "__name__", ""))
def test_formulas_count_with_numbers_of_any_size(formula, given):
    def numpy(x):
        return np.int32(x) if isinstance(x, int) else x

    right = formula(**given)
    assert formula(**{name: numpy(x) for name, x in given.items()}) == right
    assert not isinstance(right, np.generic)


@pytest.mark.parametrize("wrong", ["4", None, float("nan"), -1, [4]])
@pytest.mark.parametrize(("formula", "given"), FORMULAS, ids=lambda each: getattr(each, "__name__", ""))
def test_formulas_refuse_what_is_no_number(formula, given, wrong):
    for name in given.keys() - {"kv_width", "window"} if wrong is None else given:
        with pytest.raises(ArgumentError):
            formula(**given | {name: wrong})


def test_what_is_declared_as_whole_is():
    with pytest.raises(ArgumentError, match="ranks is 1.5; needs a whole number"):
        zero.paper_bytes(1e9, 1.5, 2)


@pytest.mark.parametrize("wrong", ["4", None, float("nan"), -1])
def test_a_cluster_links_numbers_of_ranks(wrong):
    told, h100 = formula("all_reduce", "ring", ranks=8, num_bytes=1024), preset("h100")
    for call in (h100.link, lambda ranks: told.on(h100, ranks), lambda link: nccl_link(link, "LL")):
        with pytest.raises(ArgumentError, match=r"(ranks|link) is .*; needs"):
            call(wrong)
    assert told.on("h100", np.int8(8)) == told.on(h100, 8)


def test_a_shape_counts_with_numbers_of_any_size():
    large = Shape(layers=np.int32(96), width=np.int16(12288), heads=96, context=np.int16(2048), vocabulary=51200)
    plain = Shape(layers=96, width=12288, heads=96, context=2048, vocabulary=51200)
    assert formulas.num_parameters(large) == formulas.num_parameters(plain)


@pytest.mark.parametrize(("file", "own"), [("numpy/random/_drawn.pyx", False), ("mine.py", True), ("<string>", False)])
def test_what_is_compiled_is_not_the_users_own(file, own):
    with pytest.raises(ZeroDivisionError) as error:
        exec(compile("1 / 0", file, "exec"))
    error.value.__traceback__ = error.tb.tb_next  # without this file
    assert own_line(error.value) == ("mine.py, line 1" if own else "")


@pytest.mark.parametrize("args", [(), (4, 3, 2, 1)])
def test_a_formula_that_is_given_other_arguments_is_named(args):
    with pytest.raises(TypeError, match=r"fat_tree\(\) (missing|takes)"):
        fat_tree(*args)
