"""What a notebook shows of an object that ends a cell: a line that tells what it is, without arrays."""

import numpy as np
import pytest

import simdist as sd
from simdist.asynchronous import graphs
from simdist.cluster import preset
from simdist.data import Batches, Corpus
from simdist.nn import mlp, published
from simdist.parallel.pipeline import Times, schedule, simulate
from simdist.planning import Workbench, execute, planned, search
from simdist.training import Config

TEXT = Corpus(np.zeros(1000, np.uint8), "zeros")
SMALL = {"model": "gpt", "layers": 2, "width": 16, "heads": 2, "context_bytes": 8, "global_batch_size": 4}


def test_a_run():
    run = sd.run(lambda comm: np.full(1000, comm.rank), 64)
    assert repr(run).startswith("<run of 0 s: results [array([0, 0, ..., 0, 0], shape=(1000,)), array([1, 1, ")
    assert repr(run).endswith(", ...]; <trace of 64 ranks: 0 spans>>")
    assert len(repr(run)) < 400
    assert "results [0, 1]; " in repr(sd.run(lambda comm: comm.rank, 2))


@pytest.mark.parametrize(
    ("made", "told"),
    [
        (
            preset("h100").with_(slow={3: 2.0}),
            "<cluster h100: nodes of 8 devices (H100), inside 450 GB/s after 3 µs, between 50 GB/s after 5 µs, "
            "slow {3: 2.0}>",
        ),
        (
            schedule("zb-h1", 4, 8),
            "<schedule zb-h1 of 4 ranks and 8 micro-batches: 96 actions, which print() shows>",
        ),
        (simulate(schedule("gpipe", 1, 1), Times()).course, "<course of 2 actions on 1 rank>"),
        (graphs.graph("ring", 64), "<graph of 64 ranks and 64 edges>"),
        (Workbench("h100", 4), "<workbench: 4 ranks of h100>"),
        (published("gpt2"), "Shape(layers=12, width=768, heads=12, context=1024, vocabulary=50257)"),
        (mlp(4, 4, 8, 1), "<model of 3,464 parameters>"),
        (next(iter(mlp(4, 4, 8, 1).parameters)), "<parameter embedding.table of shape (256, 4)>"),
        (TEXT, "<text 'zeros' of 1,000 bytes>"),
        (TEXT.split(5, 0.1, 0)[0], "<split of 828 windows of 5 bytes>"),
        (Batches(TEXT.split(5, 0.1, 0)[0], 8, 0).part(0, 0, 2), "<part of a batch: 4 of 8 windows>"),
    ],
)
def test_a_line(made, told):
    assert repr(made) == told


def test_a_simulation():
    made = simulate(schedule("1f1b", 4, 8), Times())
    assert repr(made) == f"<simulation: makespan 33, bubble 9; {made.schedule!r}>"


def test_plans():
    bench = Workbench("h100", 2)
    plan = planned(Config(**SMALL), bench)
    assert repr(plan) == f"<plan of {plan.step.seconds:.4g} s a step and {plan.num_bytes / 1e9:.4g} GB: {plan.config}>"
    assert repr(execute(plan.config, bench)).startswith("<execution on 2 ranks: ")
    found = search(SMALL | {"zero": 1}, bench)
    assert repr(found).startswith(f"<plans: {len(found.best)} fit, the first <plan of ") and len(repr(found)) < 400


@pytest.mark.parametrize(
    "given",
    [
        {},
        SMALL,
        {"zero": 3},
        {"model": "gpt", "pp": 2, "micro_batches": 4, "schedule": "pipedream"},
        {"method": "async", "servers": 2, "slow": "1:2.0"},
        {"method": "diloco", "model": "gpt"},
        {"compress": "top-k", "compress_share": 0.5},
    ],
)
def test_a_config_shows_what_is_no_default_and_makes_the_same_again(given):
    config = Config(**given)
    assert eval(repr(config)) == config
    assert len(repr(config)) < 200


def test_a_default_config():
    assert repr(Config(steps=600, seed=3)) == "Config(seed=3)"
