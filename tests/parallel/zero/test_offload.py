"""Offload: the same bits, in other places; every way on the record, with its bytes and its time."""

import gc
from math import inf
from pathlib import Path

import numpy as np
import pytest
from harness import virtual, xp
from zero_training import BUCKET_BYTES, MODELS, adamw, sharded, trained, whole

import simdist as sd
from simdist.arrays import Ledger, phantom, recorded
from simdist.cluster import Host, preset
from simdist.errors import ArgumentError, UnknownNameError
from simdist.nn import Shape, gpt
from simdist.parallel.zero import FSDP, Offload, ZeRO
from simdist.parallel.zero.formulas import kept

STATE, GRADIENTS, ALL = ("optimizer",), ("optimizer", "gradients"), ("optimizer", "gradients", "parameters")
CASES = [(1, STATE), (2, STATE), (2, GRADIENTS), (3, STATE), (3, ("parameters",)), (3, ALL)]


@pytest.mark.slow(but=4)
@pytest.mark.parametrize("where", ["host", "disk"])
@pytest.mark.parametrize(("zero_stage", "what"), CASES)
@pytest.mark.parametrize("kind", ["float32", "bf16"])
def test_results_are_the_same_bits(tmp_path, zero_stage, what, where, kind):
    expected = virtual(sharded, 3, "gpt", adamw(kind), zero_stage, 3)[0]
    for weights, files in virtual(offloaded, 3, zero_stage, what, where, kind, tmp_path):
        np.testing.assert_array_equal(weights, expected)
        assert files == []  # not even while it runs


def offloaded(comm, zero_stage, what, where, kind, folder):
    options = {"bucket_bytes": BUCKET_BYTES, "offload": Offload(what, where, folder)}
    method = ZeRO(MODELS["gpt"](), comm, adamw(kind), 1, zero_stage, **options)
    trained(method, "gpt", 2)
    method.restore(method.vectors(), method.numbers())
    trained(method, "gpt", 1, first=2)
    return whole(method), list(folder.iterdir()) if folder else []


@pytest.mark.one_node
@pytest.mark.parametrize("where", ["host", "disk"])
def test_real_ranks_get_the_same_bits(spmd, where):
    run = spmd if xp.path == "staged" else virtual  # by messages alone, sums are in another order
    expected = run(sharded, 3, "gpt", adamw("bf16"), 3, 3)[0]
    for weights, _ in spmd(offloaded, 3, 3, ALL, where, "bf16", None):
        np.testing.assert_array_equal(weights, expected)


def test_a_disk_is_used_and_left_empty(tmp_path):
    maps = Path("/proc/self/maps")
    if not maps.exists():
        pytest.skip("this system does not tell what is mapped")

    def program(comm):
        method = FSDP(MODELS["gpt"](), comm, adamw("bf16"), 1, offload=Offload(ALL, "disk", tmp_path))
        trained(method, "gpt", 1)
        return maps.read_text()

    assert f"{tmp_path}/" in sd.run(program, 2).results[1] and list(tmp_path.iterdir()) == []
    gc.collect()
    assert f"{tmp_path}/" not in maps.read_text()


# -- the record ---------------------------------------------------------------------------------------


def ways(comm, zero_stage, what, where, kind):
    """The bytes of a step's ways, by name."""
    options = {"bucket_bytes": BUCKET_BYTES, "offload": Offload(what, where)}
    method = ZeRO(MODELS["gpt"](), comm, adamw(kind), 1, zero_stage, **options)
    first = len(comm.recorder.rows)
    trained(method, "gpt", 1)
    found = {}
    for span in comm.recorder.spans()[first:]:
        if span.name.startswith("offload"):
            name = span.name.removeprefix("offload ")
            found[name] = found.get(name, 0) + span.bytes
    return found, method.units.holding.size


@pytest.mark.parametrize("kind", ["float32", "bf16"])
def test_every_way_is_on_the_record_with_its_bytes(kind):
    item, state = (4, 12) if kind == "float32" else (2, 12)
    down, up = "gradients device to host", "parameters host to device"
    for found, own in virtual(ways, 4, 1, STATE, "host", kind):
        assert found == {down: item * own, up: item * own}
    for found, own in virtual(ways, 4, 2, GRADIENTS, "host", kind):
        assert found == {down: item * own, up: item * own}
    for found, own in virtual(ways, 4, 3, ALL, "host", kind):
        assert found == {down: item * own, up: 2 * item * own}
    for found, own in virtual(ways, 4, 2, STATE, "disk", kind):
        there = {"optimizer disk to host": state * own, "optimizer host to disk": state * own}
        assert found == {down: item * own, up: item * own} | there


def test_nothing_is_on_the_record_without_it():
    assert [found for found, _ in virtual(ways, 2, 3, (), "host", "bf16")] == [{}, {}]


def big(comm, zero_stage, what, where):
    """A step of a model that is not there: its seconds, and what the ledger counts on the device."""
    ledger = Ledger()
    with recorded(ledger):
        model, offload = gpt(SHAPE), Offload(what, where)
        method = ZeRO(model, comm, adamw("bf16"), 1, zero_stage, memory=phantom, offload=offload)
        comm.barrier()
        start_s = comm.clock()
        method.backward(phantom((1, 129), np.uint8), 1.0)
        backward_s = comm.clock()
        method.step(0.001)
        now = ledger.now
    return backward_s - start_s, comm.clock() - backward_s, now.of("optimizer state"), now.of("gradients")


SHAPE = Shape(layers=6, width=1024, heads=8, context=128)
CLUSTER = preset("h100").with_(host=Host(1e9, 2e9, 0.5e9))


def spent(zero_stage, what, where="host"):
    return sd.run(big, 4, cluster=CLUSTER, args=(zero_stage, what, where)).results[0]


def test_the_way_takes_the_time_of_the_link_and_the_update_that_of_the_hosts_memory():
    own = gpt(SHAPE).parameters.size / 4
    there, away = spent(2, STATE), spent(2, ())
    # Down and up by 2 bytes a weight; weights, m and v read and written, the gradient read.
    assert there[1] - away[1] == pytest.approx(own * (4 / 1e9 + 26 / 2e9), rel=0.05)
    disk = spent(2, STATE, "disk")
    assert disk[1] - there[1] == pytest.approx(own * 24 / 0.5e9, rel=0.01)


def test_a_host_that_is_faster_than_the_device_takes_the_devices_time():
    """A machine whose host's memory has no limit updates as fast as its device alone."""
    endless = CLUSTER.with_(host=Host(inf, inf, inf))
    updates_s = [sd.run(big, 4, cluster=endless, args=(2, what, "host")).results[0][1] for what in ((), STATE)]
    assert updates_s[1] == pytest.approx(updates_s[0], rel=0.01)


def test_what_is_away_takes_no_memory_of_the_device():
    model, recipe = gpt(SHAPE), adamw("bf16")
    at_home = kept(model, recipe, 4, 2)
    assert spent(2, ())[2:] == (at_home.optimizer_state, at_home.gradients)
    assert spent(2, STATE)[2:] == (0, at_home.gradients)
    assert spent(2, GRADIENTS)[2:] == (0, 0)


def test_gradients_on_their_way_are_hidden_behind_backward():
    with_state, with_both = spent(2, STATE), spent(2, GRADIENTS)
    saved_s = gpt(SHAPE).parameters.size / 4 * 2 / 1e9
    assert with_state[1] - with_both[1] == pytest.approx(saved_s, rel=0.01)


# -- limits -------------------------------------------------------------------------------------------


def test_what_there_is_not():
    with pytest.raises(UnknownNameError, match="unknown thing to offload 'gradient'; did you mean 'gradients'"):
        Offload(["gradient"])
    with pytest.raises(UnknownNameError, match="unknown place to offload to 'cpu'"):
        Offload(where="cpu")


@pytest.mark.parametrize(("zero_stage", "what"), [(1, "gradients"), (2, "parameters")])
def test_what_every_rank_has_whole_stays(spmd, zero_stage, what):
    with pytest.raises(ArgumentError, match=f"offload of {what} in stage {zero_stage}"):
        spmd(lambda comm: bool(ZeRO(MODELS["mlp"](), comm, adamw(), 1, zero_stage, offload=Offload([what]))), 2)


def test_a_folder_that_is_missing_is_named(spmd, tmp_path):
    with pytest.raises(OSError, match="nowhere"):
        spmd(offloaded, 2, 1, STATE, "disk", "float32", tmp_path / "nowhere")
