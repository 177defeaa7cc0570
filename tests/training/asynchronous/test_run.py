"""Asynchronous runs: those that wait for all are the synchronous one, and each tells what it did."""

import numpy as np
import pytest

import simdist as sd
from simdist.asynchronous import Exponential
from simdist.cluster import preset
from simdist.errors import ArgumentError, CollectiveMismatch
from simdist.training import Config, Trainer
from simdist.training.asynchronous import measured_gradient
from simdist.training.asynchronous.methods import ASYNCHRONOUS, AVERAGING, GOSSIP, SERVED
from simdist.training.asynchronous.report import report
from simdist.training.asynchronous.run import AsynchronousRun

ANY = {"precision": "float64", "global_batch_size": 24, "steps": 24, "interval": 8, "validation_windows": 50}
MLP = ANY | {"context_bytes": 4, "embedding_width": 4, "hidden_width": 16, "hidden_layers": 1, "learning_rate": 0.2}
GPT = ANY | {"model": "gpt", "layers": 1, "width": 16, "heads": 2, "context_bytes": 12, "learning_rate": 0.01}
SLOW = {"slow": "2:4.0", "compute_seconds": 0.01}


def ran(comm, settings):
    """What rank 0 knows in the end, as far as it can travel."""
    run = AsynchronousRun(comm, Config(**settings))
    lines = [list(line) for lines in run.run() for line in lines]
    results, texts = run.results(), run.samples()
    if results is None:
        return None
    return {
        "lines": lines,
        "waited": results.waited_shares(),
        "staleness": results.staleness,
        "report": str(report(results, run.text)),
        "rows": [tuple(row) for row in report(results, run.text).rows],
        "spans": len(results.trace),
        "consensus": results.has_consensus,
        "texts": [len(text) for _, text in texts],
        "moments": len(results.timed_losses),
    }


def trained(comm, settings):
    return [list(line) for line in Trainer(comm, Config(**settings)).run() if line]


@pytest.mark.slow(but=4)
@pytest.mark.parametrize("model", [MLP, GPT], ids=["mlp", "gpt"])
@pytest.mark.parametrize(
    ("way", "p"),
    [
        ({"method": "bsp"}, 4),
        ({"method": "bsp", "servers": 2}, 4),
        ({"method": "ssp", "staleness": 0, "optimizer": "sgd", "momentum": 0.0}, 4),
        ({"method": "local-sgd", "local_steps": 1, "optimizer": "sgd"}, 3),
        ({"method": "post-local", "switch_share": 0.99, "local_steps": 2, "optimizer": "sgd"}, 3),
    ],
)
def test_ranks_that_wait_for_all_train_as_one(spmd, text, model, way, p):
    settings = model | {"data": text, "clip_norm": 0.0, "sample_bytes": 3}
    alike = {name: way[name] for name in ("optimizer", "momentum") if name in way}
    expected = spmd(trained, 1, settings | alike)[0]
    found = spmd(ran, p, settings | way)[0]
    steps = [line[0] for line in found["lines"]]
    assert steps == [1, 8, 16, 24] == [line[0] for line in expected]
    for line, other in zip(found["lines"], expected, strict=True):
        assert line[1:4] == pytest.approx(other[1:4], rel=1e-9)
    assert found["texts"] == [3, 3, 3]


@pytest.mark.slow(but=2)
@pytest.mark.parametrize("method", ASYNCHRONOUS)
def test_every_method_learns(spmd, text, method):
    steps = {"steps": 80, "interval": 40} | ({"local_steps": 8, "learning_rate": 0.02} if method == "diloco" else {})
    found = spmd(ran, 4, MLP | steps | {"data": text, "method": method, "precision": "float32"})[0]
    first, last = found["lines"][0], found["lines"][-1]
    assert last[2] < first[2] - 0.3
    assert [line[8] for line in found["lines"]] == sorted(line[8] for line in found["lines"])
    assert len(found["waited"]) == 4 and all(0 <= share <= 1 for share in found["waited"])
    assert bool(found["staleness"]) == (method in SERVED)
    assert found["consensus"] == (method in GOSSIP)
    assert found["spans"] > 0
    workers = 3 if method in SERVED else 4
    assert found["moments"] == 80 * workers or method == "backup"
    assert f"4 ranks, {method}" in found["report"]


def test_the_fast_wait_and_the_slow_never_do(text):
    """The line of command that this is for: --method ssp --staleness 3 --slow 2:4.0."""
    shares = {}
    for method in ("bsp", "ssp", "async", "d-psgd", "ad-psgd"):
        settings = MLP | SLOW | {"data": text, "method": method, "steps": 48}
        shares[method] = sd.run(ran, 4, args=(settings,)).results[0]["waited"]
    for method in ("bsp", "d-psgd"):
        assert shares[method][1:] == pytest.approx([0.75, 0, 0.75], abs=0.06)
    assert shares["ssp"][2] < 0.02 and 0.6 < shares["ssp"][1] < shares["bsp"][1]
    assert max(shares["async"][1:]) < 0.02
    assert max(shares["ad-psgd"]) < 0.3


def test_each_step_of_gossip_has_its_own_messages(text):
    """Which set out before its gradient is asked for."""
    found = sd.run(ran, 4, args=(MLP | {"data": text, "method": "d-psgd", "steps": 4, "interval": 1},)).results[0]
    assert len({line[7] for line in found["lines"]}) == 1


def test_gossip_that_diverges_has_no_consensus_to_draw(text):
    settings = MLP | {"data": text, "method": "d-psgd", "steps": 4, "interval": 1, "learning_rate": 1e11}
    with np.errstate(over="ignore", invalid="ignore"):
        found = sd.run(ran, 4, args=(settings | {"precision": "float32", "warmup_steps": 0},)).results[0]
    assert np.isnan(found["lines"][-1][1]) and not found["consensus"]


@pytest.mark.parametrize("method", ["async", "ad-psgd"])
def test_who_waits_for_nobody_is_not_told_to_communicate(text, method):
    """Neither while it has not been asked, nor when it is done and others are not."""
    settings = MLP | SLOW | {"data": text, "method": method, "steps": 48, "interval": 12}
    found = sd.run(ran, 6, args=(settings,)).results[0]
    assert max(found["waited"][1:]) < 0.03
    assert max(line[6] for line in found["lines"]) < 0.03


@pytest.mark.parametrize(
    "way", [{"method": "d-psgd"}, {"method": "diloco", "local_steps": 8}, {"method": "bsp"}], ids=str
)
def test_all_of_a_step_takes_time(text, way):
    """Also what comes after its gradient: of a cluster where that is most of it, in the first line and the report."""
    settings = MLP | way | {"data": text, "interval": 24}
    found = sd.run(ran, 4, cluster=preset("h100"), args=(settings,)).results[0]
    lines = found["lines"]
    assert way["method"] == "diloco" or lines[0][5] < 1.5 * lines[-1][5]  # its first step ends without a message
    assert all(line[6] < 1 for line in lines)
    told = float(found["report"].split(" tokens/s")[0].split()[-1].replace(",", ""))
    assert told == pytest.approx(24 * 24 / lines[-1][8], rel=1e-3)


def test_who_comes_to_a_cut_early_waits_there(text):
    """Of 24 steps in 4 stretches the slow rank's take 4 times as long; after the last one the others have ended."""
    settings = MLP | SLOW | {"data": text, "method": "ssp", "staleness": 24, "checkpoint_every": 6}
    waited = sd.run(ran, 4, args=(settings,)).results[0]["waited"]
    waits, works = 3 * 6 * (4 - 1), 24
    assert waited[1:] == pytest.approx([waits / (waits + works), 0, waits / (waits + works)], abs=0.02)


def test_a_gradient_that_is_given_up_is_not_sent(text):
    times = {"compute_time": "exponential", "compute_seconds": 0.01}
    found = sd.run(ran, 5, args=(MLP | times | {"data": text, "method": "backup", "steps": 40},)).results[0]
    measured, predicted, formula = (float(cell.replace(",", "")) for cell in found["rows"][0][1:])
    assert measured == pytest.approx(predicted, rel=0.01)
    assert predicted < 0.8 * formula
    assert "A gradient given up is not sent here; in the paper it is" in found["report"]


def test_what_is_off_the_record_is_not_predicted_from(text, monkeypatch):
    settings = MLP | {"data": text, "method": "local-sgd", "local_steps": 4, "algorithm": "ring", "steps": 24}
    monkeypatch.setattr(measured_gradient, "_MOST_ROWS", 60)
    found = sd.run(ran, 4, args=(settings,)).results[0]
    measured, predicted, formula = found["rows"][0][1:]
    assert measured == predicted == formula


def test_a_run_that_is_given_up_leaves_the_record_on(text, monkeypatch):
    monkeypatch.setattr(measured_gradient, "_MOST_ROWS", 60)
    settings = MLP | {"data": text, "method": "local-sgd", "local_steps": 4, "algorithm": "ring", "steps": 24}

    def program(comm):
        lines = AsynchronousRun(comm, Config(**settings, checkpoint_every=12)).run()
        next(lines)
        first = comm.recorder.on
        lines.close()
        return first, comm.recorder.on

    assert sd.run(program, 4).results == [(False, True)] * 4


def test_staleness_is_bounded_by_what_ssp_says(text):
    settings = MLP | SLOW | {"data": text, "method": "ssp", "staleness": 2, "compute_time": "exponential"}
    found = sd.run(ran, 5, args=(settings,)).results[0]["staleness"]
    assert len(found) == 4 * 24
    assert 0 < max(found) <= 3 * (2 * 2 + 1)  # of each of the 3 others, those in the window of 2s, and one at work


@pytest.mark.slow(but=3)
@pytest.mark.parametrize(
    ("way", "p", "expected"),
    [
        ({"method": "ssp", "servers": 2}, 4, lambda n: (n + 2 * 40, n)),
        ({"method": "d-psgd", "graph": "complete"}, 4, lambda n: (3 * n, 3 * n)),
        ({"method": "d-psgd", "graph": "torus"}, 6, lambda n: (3 * n, 3 * n)),
        ({"method": "ad-psgd"}, 4, lambda n: (n, n)),
        ({"method": "local-sgd", "local_steps": 6, "algorithm": "ring"}, 4, lambda n: (1.5 * n / 6, 1.5 * n / 6)),
        ({"method": "diloco", "local_steps": 12, "algorithm": "ring"}, 2, lambda n: (n / 12, n / 12)),
    ],
)
def test_bytes_measured_beside_predicted_beside_formula(text, way, p, expected):
    settings = MLP | {"data": text, "steps": 24} | way
    found = sd.run(ran, p, args=(settings,)).results[0]
    num_weights = int(found["report"].split(" parameters")[0].split()[-1].replace(",", ""))
    predicted, formula = expected(8 * num_weights)
    measured = [float(cell.replace(",", "")) for cell in found["rows"][0][1:]]
    assert measured == pytest.approx([predicted, predicted, formula], abs=8)


def test_a_step_with_backups_takes_as_long_as_the_harmonic_numbers_say(text):
    """Of 6 workers with exponential times the first 4: H_6 - H_2 means."""
    times = {"compute_time": "exponential", "compute_seconds": 1.0}
    settings = MLP | times | {"data": text, "method": "backup", "backups": 2, "steps": 200, "interval": 200}
    found = sd.run(ran, 7, args=(settings,)).results[0]
    _, measured, _, formula = found["rows"][2]
    assert formula == "950.000 ms"
    assert float(measured.removesuffix(" ms").replace(",", "")) == pytest.approx(950, rel=0.15)
    assert "given up because their step was over" in found["report"]


@pytest.mark.slow
def test_a_step_without_waiting_takes_a_workers_own_time(text):
    settings = MLP | SLOW | {"data": text, "method": "async", "compute_time": "lognormal", "steps": 300}
    _, measured, _, formula = sd.run(ran, 4, args=(settings,)).results[0]["rows"][2]
    assert formula == "20.000 ms"  # of three workers one takes four times 10 ms
    assert float(measured.removesuffix(" ms").replace(",", "")) == pytest.approx(20, rel=0.1)


@pytest.mark.slow
def test_of_many_ranks_the_mean_share_is_told(text):
    settings = MLP | {"data": text, "method": "bsp", "servers": 2, "steps": 3, "compute_seconds": 0.01}
    told = sd.run(ran, 20, args=(settings,)).results[0]["report"]
    assert "waited for others and their messages: servers 9" in told and "; workers " in told and "rank 3 " not in told


def test_times_hang_on_the_seed_alone(text):
    settings = MLP | {"data": text, "method": "async", "compute_time": "lognormal", "compute_seconds": 0.01}
    one, again = (sd.run(ran, 4, args=(settings,)).results[0] for _ in range(2))
    assert one == again
    assert one != sd.run(ran, 4, args=(settings | {"seed": 1},)).results[0]
    assert Exponential(1.0, 0).seconds(1, 1) != Exponential(1.0, 1).seconds(1, 1)


def test_gradients_are_clipped_by_each_worker(text):
    settings = MLP | {"data": text, "method": "local-sgd", "optimizer": "sgd", "momentum": 0.0, "clip_norm": 1e-9}
    found = sd.run(ran, 2, args=(settings,)).results[0]
    assert found["lines"][-1][2] == pytest.approx(found["lines"][0][2], abs=1e-6)
    assert found["lines"][-1][4] > 1e-3  # the norm before


@pytest.mark.parametrize(
    ("settings", "p", "message"),
    [
        ({"method": "ssp", "servers": 4}, 4, "servers is 4 on 4 ranks"),
        ({"method": "bsp"}, 1, "servers is 1 on 1 rank;"),
        ({"method": "bsp", "slow": "0:2"}, 3, "slow names rank 0; those that work are ranks 1 to 2"),
        ({"method": "local-sgd", "slow": "1:2,3:2"}, 3, "slow names rank 3"),
        ({"method": "local-sgd", "slow": "1:2,1:4"}, 3, "which names rank 1 twice"),
        ({"method": "backup", "backups": 3}, 4, "3 backups of 3 workers"),
        ({"method": "ad-psgd", "graph": "ring"}, 3, "not bipartite"),
        ({"method": "d-psgd", "graph": "hypercube"}, 3, "a hypercube of 3 ranks; needs a power of two"),
    ],
)
def test_what_cannot_be_on_so_many_ranks_is_refused_on_all(spmd, text, settings, p, message):
    def program(comm):
        try:
            AsynchronousRun(comm, Config(**MLP | {"data": text} | settings))
        except ArgumentError as error:
            return str(error)

    assert all(message in told for told in spmd(program, p))


def test_ranks_must_be_told_alike(spmd, text):
    def program(comm):
        AsynchronousRun(comm, Config(**MLP | {"data": text, "method": "ssp", "staleness": comm.rank}))

    with pytest.raises(CollectiveMismatch, match="train on text .* by config"):
        spmd(program, 3)


def test_it_has_no_common_step(text):
    with pytest.raises(ArgumentError, match="method ssp has no common step"):
        sd.run(trained, 2, args=(MLP | {"data": text, "method": "ssp"},))


@pytest.mark.slow(but=2)
@pytest.mark.parametrize("method", AVERAGING)
@pytest.mark.parametrize(
    ("devices_per_node", "algorithm"), [(8, "auto"), (2, "auto"), (3, "auto"), (2, "hierarchical")]
)
def test_averages_take_what_their_costs_say(text, method, devices_per_node, algorithm):
    """Also where they send no messages, or fewer: then it tells what they move in memory that ranks share."""
    cluster = preset("this-machine").with_(devices_per_node=devices_per_node)
    settings = MLP | {"data": text, "method": method, "algorithm": algorithm, "local_steps": 3}
    rows = sd.run(ran, 4, cluster=cluster, args=(settings,)).results[0]["rows"]
    of = {quantity: row for quantity, *row in rows}
    sent, predicted, _ = of["bytes sent a step, a worker"]
    assert sent == predicted
    moved = of.get("bytes moved through shared memory a step, rank 0")
    assert (moved is None) == (algorithm != "auto")
    if moved:
        assert moved[0] == moved[1] != "0"


@pytest.mark.slow(but=4)
@pytest.mark.parametrize(("method", "servers"), [("async", 1), ("bsp", 2), ("backup", 1)])
@pytest.mark.parametrize("checkpoint_every", [0, 1, 4])
def test_workers_of_servers_send_what_is_predicted(text, method, servers, checkpoint_every, tmp_path):
    """With what begins and ends each stretch: many steps make it little, but it is on the record."""

    def program(comm):
        told = {"data": text, "method": method, "servers": servers, "checkpoint_every": checkpoint_every}
        run = AsynchronousRun(comm, Config(**MLP | told))
        run.checkpoints = tmp_path
        for _ in run.run():
            pass
        results = run.results()
        return results and [tuple(row) for row in report(results, run.text).rows]

    (_, sent, predicted, _) = sd.run(program, 4).results[0][0]
    assert sent == predicted
