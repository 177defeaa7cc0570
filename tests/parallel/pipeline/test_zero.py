"""ZeRO within a pipeline: the ranks of dp share gradients, and weights, too, of the stages that they have in common."""

import numpy as np
import pytest
from harness import virtual
from pipeline_training import (
    BOTH_WAYS,
    EXACT,
    MODELS,
    SCALE,
    SIZE,
    SYNCHRONOUS,
    micro_batch,
    pipeline,
    trained,
    windows,
)
from zero_training import Poisoned

import simdist as sd
from simdist.arrays import Ledger, on_host, recorded
from simdist.cluster import preset
from simdist.comm.solo import SoloCommunicator
from simdist.parallel import DataParallel
from simdist.parallel.zero.formulas import kept, paper_elements

APART = preset("h100").with_(name="apart", devices_per_node=1)  # ranks that share no memory


def shards(comm, model, name, m, sizes, zero_stage, number=0, num_steps=2):
    """After some steps: where each of this rank's shards begins, by the names of the stages' weights, and its items."""
    method = pipeline(comm, model, name, m, EXACT, sizes, zero_stage=zero_stage, shards=number)
    for step in range(num_steps):
        trained(method, model, step)
        assert method.step(0.1)
    names = [p.name for p in method.model.parameters]
    return names, [(start, on_host(data)) for start, data in method.vectors()[""]]


def alone(model, m, num_steps=2):
    """The weights of one rank, by name."""
    method = DataParallel(MODELS[model](), SoloCommunicator(), EXACT, 1)
    for step in range(num_steps):
        for i in range(m):
            own, noise = micro_batch(model, m, i, step)
            method.backward(own, SCALE, noise)
        method.step(0.1)
    return {p.name: on_host(p.data).reshape(-1) for p in method.model.parameters}


def check(run, model, name, m, sizes, zero_stage, number=0):
    expected = alone(model, m * sizes["dp"])
    found = run(shards, sizes["pp"] * sizes["dp"], model, name, m, sizes, zero_stage, number)
    items = 0
    for names, own in found:
        whole = np.concatenate([expected[each] for each in names])
        for start, data in own:
            np.testing.assert_allclose(data, whole[start : start + len(data)], rtol=1e-12, atol=1e-13)
            items += len(data)
    copies = sizes["dp"] // (number or sizes["dp"])
    assert items >= copies * sum(expected[name].size for name in expected), "each weight is on some rank"


@pytest.mark.slow(but=8)
@pytest.mark.parametrize("name", SYNCHRONOUS)
@pytest.mark.parametrize("zero_stage", [2, 3])
@pytest.mark.parametrize("model", ["gpt", "full"])
def test_weights_are_those_of_one_rank(spmd, name, zero_stage, model):
    check(spmd, model, name, 3, {"pp": 2, "dp": 2}, zero_stage)


@pytest.mark.slow(but=3)
@pytest.mark.parametrize("zero_stage", [2, 3])
@pytest.mark.parametrize("sizes", [{"pp": 1, "dp": 2}, {"pp": 2, "dp": 3}, {"pp": 4, "dp": 2}], ids=str)
@pytest.mark.parametrize("name", ["1f1b", "interleaved-1f1b", "zb-v", "dualpipe"])
def test_on_other_meshes(name, sizes, zero_stage):
    if name not in BOTH_WAYS or sizes["pp"] > 1:
        check(virtual, "gpt", name, 4, sizes, zero_stage)


@pytest.mark.parametrize("zero_stage", [2, 3])
@pytest.mark.parametrize("number", [1, 2])
def test_models_in_fewer_shards(zero_stage, number):
    check(virtual, "gpt", "zb-h1", 2, {"pp": 2, "dp": 4}, zero_stage, number)


@pytest.mark.parametrize("name", ["1f1b", "zb-v", "dualpipe"])
def test_nobody_reads_weights_that_were_released(monkeypatch, name):
    monkeypatch.setattr("simdist.parallel.zero.zero.GatheredWeights", Poisoned)
    before = Poisoned.num_releases
    check(virtual, "gpt", name, 3, {"pp": 2, "dp": 2}, 3)
    assert Poisoned.num_releases > before


# -- what travels, and what stays ---------------------------------------------------------------------------


def sent(comm, model, name, m, zero_stage):
    """What this rank sends to others of dp in a step; the number of its weights, and of those of several layers."""
    method = pipeline(comm, model, name, m, EXACT, {"pp": 2, "dp": 2}, zero_stage=zero_stage)
    trained(method, model)
    method.step(0.1)
    first = len(comm.recorder.rows)
    trained(method, model, 1)
    method.step(0.1)
    spans = comm.recorder.spans()[first:]
    to = method.mesh.dp.ranks
    num_bytes = sum(s.bytes for s in spans if s.name == "send" and s.peer in to)
    tied = [unit.room for unit in method.data.units if unit.last - unit.first > 1]
    return num_bytes, method.model.parameters.size, sum(tied)


@pytest.mark.parametrize("zero_stage", [1, 2, 3])
@pytest.mark.parametrize("name", ["gpipe", "1f1b", "interleaved-1f1b", "zb-h1", "dualpipe"])
def test_micro_batches_multiply_what_is_sent(name, zero_stage):
    """(m + 1) and 3m times the weights instead of 2 and 3; both ways half of them pass through each of two stages."""
    m = 2 if name in BOTH_WAYS else 4
    for num_bytes, size, _ in sd.run(sent, 4, cluster=APART, args=("untied", name, 4, zero_stage)).results:
        assert num_bytes == 8 * paper_elements(size, 2, zero_stage, micro_batches=m)


@pytest.mark.parametrize(("zero_stage", "more"), [(2, 1), (3, 3)])
def test_a_layer_of_two_stages_travels_for_each(zero_stage, more):
    """The first and the last stage are on one rank, in a V, and share a table."""
    m = 4
    found = sd.run(sent, 4, cluster=APART, args=("gpt", "zb-v", m, zero_stage)).results
    assert [tied > 0 for *_, tied in found].count(True) == 2
    for num_bytes, size, tied in found:
        assert num_bytes == 8 * (paper_elements(size, 2, zero_stage, micro_batches=m) + more * m * tied / 2)


@pytest.mark.parametrize("zero_stage", [2, 3])
@pytest.mark.parametrize("name", ["1f1b", "zb-v"])
def test_only_parts_stay(name, zero_stage):
    """A rank's part of the gradients and the weights, and the slots through which layers pass."""

    def program(comm):
        with recorded(ledger := Ledger()):
            method = pipeline(comm, "gpt", name, 4, EXACT, {"pp": 2, "dp": 2}, zero_stage=zero_stage)
            trained(method, "gpt")
        how = {"rank": method.mesh.dp.rank, "bucket_bytes": 1, "apart": method.share.copies.displaced}
        return ledger.peaks, kept(method.model, EXACT, 2, zero_stage, **how), method.model.parameters.size

    for peaks, exact, size in sd.run(program, 4, cluster=APART).results:
        assert peaks["gradients"] == exact.gradients <= 8 * (size // 2 + 8)
        assert peaks["parameters"] == exact.parameters
        assert peaks["communication"] >= exact.communication > 0


# -- loss, logits, state --------------------------------------------------------------------------------


def goes_on(comm, zero_stage):
    """Trains, hands its state to another that goes on, and says what that makes of some windows."""
    sizes = {"pp": 2, "dp": 2}
    method, other = (pipeline(comm, "gpt", name, 3, EXACT, sizes, zero_stage=zero_stage) for name in ("1f1b", "zb-h1"))
    trained(method, "gpt")
    method.step(0.1)
    other.restore(method.vectors(), method.numbers())
    own = windows("gpt", 2)
    return other.loss(own), other.logits(own[:, 1:])


@pytest.mark.parametrize("zero_stage", [2, 3])
def test_loss_and_logits_of_anothers_state(spmd, zero_stage):
    one, own = DataParallel(MODELS["gpt"](), SoloCommunicator(), EXACT, 1), windows("gpt", 2)
    for i in range(6):
        each, noise = micro_batch("gpt", 6, i)
        one.backward(each, SCALE, noise)
    one.step(0.1)
    assert len(own) == 2 * SIZE
    for total, logits in spmd(goes_on, 4, zero_stage):
        assert total == pytest.approx(one.loss(own), rel=1e-12)
        np.testing.assert_allclose(logits, one.logits(own[:, 1:]), rtol=1e-12, atol=1e-13)
