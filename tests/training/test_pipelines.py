"""A run in a pipeline is the run of one rank: weights, lines, samples, checkpoints; and what cannot be is refused."""

from contextlib import nullcontext
from copy import deepcopy
from pathlib import Path

import numpy as np
import pytest
from checkpointing import shared
from mesh_training import joined, parts_of
from pipeline_training import SYNCHRONOUS

import simdist as sd
from simdist.cluster import preset
from simdist.data import Batches
from simdist.errors import ArgumentError, DeadlockError
from simdist.nn import Noise
from simdist.parallel.pipeline import Schedule, Times, Weights, named, schedule
from simdist.parallel.pipeline.schedules import registry
from simdist.training import Config, Trainer
from simdist.training.pipelines import over_links, schedule_of

GPT = {"model": "gpt", "layers": 3, "width": 16, "heads": 4, "context_bytes": 12, "dropout": 0.1, "interval": 7}
GPT |= {"precision": "float64", "global_batch_size": 6, "steps": 20, "validation_windows": 10, "warmup_steps": 2}
GPT |= {"optimizer": "sgd", "learning_rate": 0.05, "clip_norm": 0.5, "sample_bytes": 5, "temperature": 0.0}
MESHES = [
    ({"pp": 2, "schedule": "1f1b"}, 2),
    ({"pp": 4, "schedule": "zb-h1"}, 4),
    ({"pp": 2, "dp": 2, "schedule": "zb-v"}, 4),
    ({"pp": 2, "tp": 2, "schedule": "1f1b"}, 4),
    ({"pp": 2, "dp": 2, "zero": 1, "schedule": "dualpipe"}, 4),
    ({"pp": 2, "dp": 4, "zero": 1, "shards": 2}, 8),
]
every_mesh = pytest.mark.parametrize(("mesh", "p"), MESHES, ids=lambda told: str(told))


@pytest.fixture
def settings(text):
    return GPT | {"data": text}


def run(comm, settings, folder=None, resume=None):
    """The lines of a run, as far as they are of the training and not of its cost; its samples; its weights."""
    trainer = Trainer(comm, Config(**settings), folder and Path(shared(comm, folder)))
    if resume:
        trainer.resume(trainer.checkpoints, resume)
    lines = [list(line[:5]) for line in trainer.run() if line]
    parameters = trainer.method.model.parameters
    flat = np.concatenate([p.data.reshape(-1) for p in parameters])
    return lines, [text.decode("latin") for _, text in trainer.samples()], parts_of(parameters, flat)


def check(results, alone):
    """Lines, samples and weights are those of one rank."""
    [(lines, written, weights)] = alone
    for found, texts, _ in results:
        np.testing.assert_allclose(found, lines, rtol=1e-12)
        assert texts == written
    expected, whole = joined([weights]), joined([parts for *_, parts in results])
    assert whole.keys() == expected.keys()
    for name, x in expected.items():
        np.testing.assert_allclose(whole[name], x, rtol=0, atol=1e-12 * max(1, np.abs(x).max()), err_msg=name)


@pytest.mark.slow(but=3)
@every_mesh
def test_the_same_run_as_on_one_rank(spmd, settings, mesh, p):
    check(spmd(run, p, settings | mesh | {"micro_batches": 3}), spmd(run, 1, settings))


EXPERTS = {"experts": 4, "top_k": 2, "group": 3, "capacity_factor": 1.0}


@pytest.mark.slow(but=4)
@pytest.mark.parametrize("name", SYNCHRONOUS)
def test_by_any_schedule(spmd, settings, name):
    few = settings | {"steps": 3, "sample_bytes": 1, "layers": 6}
    check(spmd(run, 2, few | {"pp": 2, "schedule": name, "micro_batches": 4}), spmd(run, 1, few))


@pytest.mark.slow(but=4)
@pytest.mark.parametrize(
    "more",
    [
        {"pp": 2, "tp": 2, "sequence_parallel": True},
        {"pp": 2, "sp": 2},
        {"pp": 2, "sp": 2, "ulysses": True},
        {"pp": 2, "dp": 2, "recompute": "full"},
        {"pp": 3, "recompute": "selective"},
        {"pp": 2, "logits": "untied"},
        {"pp": 2, "dp": 2, "micro_batches": 5},  # of 3 windows a rank, so that some are empty
        {"pp": 2, "order": "passes", "global_batch_size": 7},  # the last batch of a pass is smaller
        {"pp": 1, "dp": 2, "schedule": "zb-v"},
        {"pp": 2, "ep": 2} | EXPERTS,
        {"pp": 2, "tp": 2, "schedule": "zb-h1"} | EXPERTS,
    ],
    ids=str,
)
def test_with_all_else(spmd, settings, more):
    few = {"steps": 4, "micro_batches": 3, "sample_bytes": 1} | more
    cut = ("pp", "dp", "tp", "sp", "ep", "schedule", "sequence_parallel", "ulysses", "micro_batches")
    p = int(np.prod([few.get(axis, 1) for axis in ("pp", "dp", "tp", "sp", "ep")]))
    alone = {name: value for name, value in few.items() if name not in cut}
    check(spmd(run, p, settings | few), spmd(run, 1, settings | alone))


@pytest.mark.parametrize("short", ["bf16", "fp16"])
@pytest.mark.parametrize("more", [{"pp": 2, "schedule": "zb-h1"}, {"pp": 2, "dp": 2, "zero": 1}], ids=str)
def test_short_numbers(spmd, settings, short, more):
    some = settings | {"steps": 6, "precision": short}
    [(lines, *_)] = spmd(run, 1, some)
    for found, *_ in spmd(run, more["pp"] * more.get("dp", 1), some | more | {"micro_batches": 3}):
        np.testing.assert_allclose(np.array(found)[:, :4], np.array(lines)[:, :4], rtol=0.02)


# -- checkpoints ------------------------------------------------------------------------------------------

CUT = 9  # in the middle of an interval
ALONE, LINE, MESH = ({}, 1), ({"pp": 4, "schedule": "gpipe"}, 4), ({"tp": 2, "dp": 2, "zero": 2}, 4)
SHARED, TWO_WAYS = ({"pp": 2, "dp": 2, "zero": 1}, 4), ({"pp": 2, "schedule": "dualpipe"}, 2)


@pytest.mark.slow(but=2)
@pytest.mark.parametrize(
    ("first", "then"),
    [
        (ALONE, [SHARED, TWO_WAYS]),
        (SHARED, [ALONE, LINE]),
        (TWO_WAYS, [SHARED, MESH]),
        (({"pp": 2, "tp": 2, "schedule": "zb-v"}, 4), [ALONE, SHARED]),
    ],
    ids=str,
)
def test_it_goes_on_otherwise_than_it_began(spmd, settings, tmp_path, first, then):
    some = settings | {"optimizer": "adamw", "learning_rate": 0.001, "steps": 12, "micro_batches": 2}
    [(lines, written, _)] = spmd(run, 1, some)
    spmd(run, first[1], some | {"checkpoint_every": CUT} | first[0], tmp_path / "run")
    for mesh, ranks in then:
        for found, texts, _ in spmd(run, ranks, some | mesh, tmp_path / "run", CUT):
            np.testing.assert_allclose(found, lines[2:], rtol=1e-10)
            assert texts == written


# -- stages that update each at its own time -----------------------------------------------------------------


@pytest.mark.slow(but=1)
@pytest.mark.parametrize("name", ["pipedream", "pipedream-vertical-sync", "pipedream-2bw"])
def test_updates_in_flight(spmd, settings, tmp_path, name):
    plain = settings | {"clip_norm": None, "learning_rate": 0.01, "steps": 12}
    some = plain | {"schedule": name, "pp": 2, "micro_batches": 4}
    two = spmd(run, 2, some | {"checkpoint_every": CUT}, tmp_path / "run")
    joined([parts for *_, parts in two])
    assert two[0][0] == two[1][0] and two[0][1] == two[1][1]
    assert two[0][0][-1][2] < two[0][0][0][2] - 0.1  # it learns
    for found, texts, _ in spmd(run, 2, some, tmp_path / "run", CUT):  # and goes on as though it had not stopped
        assert found == two[0][0][2:]
        assert texts == two[0][1]
    both = spmd(run, 4, some | {"dp": 2})  # whose micro-batches are of other windows of the same batches
    assert [each[0] for each in both] == [both[0][0]] * 4
    assert both[0][0][-1][2] < both[0][0][0][2] - 0.1


def test_so_does_a_schedule_of_ones_own(settings, monkeypatch):
    monkeypatch.setattr(registry, "_MAKERS", deepcopy(registry._MAKERS))

    @named("late")
    def late(stages, micro_batches):
        return Schedule("late", schedule("1f1b", stages, micro_batches).rows, weights=Weights("stashing", 1))

    plain = settings | {"clip_norm": None, "learning_rate": 0.01, "steps": 3, "pp": 2, "micro_batches": 4}
    ours, theirs = (sd.run(run, 2, args=(plain | {"schedule": name},)).results for name in ("late", "pipedream"))
    assert [each[0] for each in ours] == [each[0] for each in theirs]


def test_a_schedule_that_is_registered_again_is_the_new_one(settings, monkeypatch):
    """As by a notebook's cell that is executed again. This one needs to be given times."""
    monkeypatch.setattr(registry, "_MAKERS", deepcopy(registry._MAKERS))
    found = []
    for name in ("gpipe", "1f1b"):

        @named("mine")
        def mine(stages, micro_batches, times, name=name):
            assert times is not None
            return schedule(name, stages, micro_batches)

        config = Config(**settings | {"pp": 2, "micro_batches": 4, "schedule": "mine"})
        found.append(schedule_of(config).rows)
    assert found == [schedule(name, 2, 4).rows for name in ("gpipe", "1f1b")]


def one_after_the_other(comm, settings, count):
    """On one rank: an update for each micro-batch of each batch, by the mean of its loss."""
    trainer, config = Trainer(comm, Config(**settings)), Config(**settings)
    method, targets = trainer.method, trainer.method.model.targets_per_window
    batches = Batches(trainer.text.train, config.global_batch_size, config.seed)
    for step in range(config.steps):
        for part in batches.part(step, 0, 1).micro_batches(count):
            scale, noise = 1 / (len(part.samples) * targets), [Noise(config.seed, step, part.samples)]
            method.train([part.windows], scale, config.rates()(step), noise)
    return method.weights.copy()


def all_weights(comm, settings):
    trainer = Trainer(comm, Config(**settings))
    assert all(line is None or line.step for line in trainer.run())
    return trainer.method.weights.copy()


def test_each_update_is_by_a_mean(spmd, settings):
    """On one stage nothing is in flight, so PipeDream is SGD on its micro-batches."""
    plain = settings | {"clip_norm": 0.0, "steps": 4, "logits": "untied"}
    [expected] = spmd(one_after_the_other, 1, plain, 3)
    [weights] = spmd(all_weights, 1, plain | {"schedule": "pipedream", "micro_batches": 3})
    np.testing.assert_allclose(weights, expected, rtol=1e-12, atol=1e-14)


# -- messages ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("more", [0, 1])
def test_messages_wait_for_their_receiver_where_those_of_virtual_ranks_do(more):
    """Where they wait, two ranks that both send first wait for ever."""
    cluster = preset("h100")
    num_bytes = cluster.eager_bytes + more

    def both_send_first(comm):
        comm.send(np.zeros(num_bytes, np.uint8), 1 - comm.rank)
        comm.recv(np.zeros(num_bytes, np.uint8), 1 - comm.rank)

    times = over_links(Times(), cluster, range(2), num_bytes)
    with pytest.raises(DeadlockError) if times.rendezvous else nullcontext():
        sd.run(both_send_first, 2, cluster=cluster)
    assert times.rendezvous == bool(more)


# -- what cannot be ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"pp": 2, "method": "server"}, "pp is 2, and method server; pp is for method pipeline"),
        ({"schedule": "1f1b", "method": "zero"}, "schedule is 1f1b, and method zero; schedule is for method pipeline"),
        ({"pp": 2, "schedule": "1f1"}, "unknown schedule '1f1'; did you mean '1f1b'"),
        ({"pp": 2, "schedule": "1f1b", "chunks": 3}, "chunks is 3, and schedule 1f1b; chunks is for schedule"),
        ({"pp": 2, "compress": "top-k"}, "compress is top-k, and method pipeline"),
        ({"pp": 2, "offload": "optimizer"}, "offload is optimizer, and method pipeline"),
        ({"pp": 2, "algorithm": "ring"}, "algorithm is ring, and method pipeline"),
        ({"pp": 2, "bucket_bytes": 1}, "bucket_bytes is 1, and method pipeline"),
        ({"pp": 2, "staleness": 1}, "staleness is 1, and method pipeline"),
        ({"pp": 2, "optimizer": "lamb"}, "pp 2, and optimizer lamb, which needs the whole model"),
        ({"pp": 2, "optimizer": "adamw8bit"}, "pp 2, and optimizer adamw8bit, which needs the whole model"),
        ({"pp": 7}, "pp is 7; this gpt has 6 layers"),
        ({"pp": 3, "schedule": "zb-v", "layers": 3}, "zb-v on pp 3 makes 6 stages; this gpt has 5 layers"),
        ({"pp": 3, "schedule": "dualpipe"}, "3"),
        ({"schedule": "pipedream-2bw", "pp": 2, "zero": 1}, "zero 1, and schedule pipedream-2bw, whose stages update"),
        ({"schedule": "pipedream", "pp": 2, "clip_norm": 1.0}, "clip_norm 1.0, and schedule pipedream"),
        ({"schedule": "pipedream", "pp": 2, "precision": "fp16"}, "precision float16|fp16, and schedule pipedream"),
        ({"schedule": "pipedream", "pp": 2, "logits": "tied"}, "logits tied, and schedule pipedream"),
        ({"schedule": "pipedream", "pp": 2, "tp": 2}, "tp 2, and schedule pipedream"),
        ({"schedule": "pipedream", "pp": 2, "ep": 2, "experts": 2}, "ep 2, and schedule pipedream"),
    ],
)
def test_what_cannot_be(given, message):
    with pytest.raises(ArgumentError, match=message):
        Config(**{"model": "gpt"} | given)


def test_a_mesh_that_is_not_the_ranks(spmd, settings):
    def program(comm):
        with pytest.raises(ArgumentError, match="pp 2 = 2 ranks, but there are 3"):
            Trainer(comm, Config(**settings | {"pp": 2}))

    spmd(program, 3)
