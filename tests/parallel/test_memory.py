"""The ledger of a training step is what the formulas say, for every rule, precision and way of recomputing."""

import numpy as np
import pytest

from simdist.arrays import Ledger, partition, recorded
from simdist.nn import Noise, Shape, gpt
from simdist.parallel import DataParallel, Recipe, compressions, optimizers
from simdist.parallel.centralized import Centralized
from simdist.parallel.compressed import Compressed
from simdist.parallel.memory import memory_rows, optimizer_state, replicated_memory
from simdist.parallel.precision import precision, precisions

WINDOWS = np.random.default_rng(0).integers(0, 256, (6, 9), np.uint8)


def shape_of(recompute):
    return Shape(layers=2, width=16, heads=2, context=8, dropout=0.1, recompute=recompute)


def rows(comm, make, recompute="none"):
    """The ledger's rows of two steps of two micro-batches, and how many weights there are."""
    ledger = Ledger(comm.clock)
    with recorded(ledger):
        method = make(gpt(shape_of(recompute)), comm)
        size, own = method.model.parameters.size, partition(6, comm.size)[comm.rank]
        parts = np.array_split(np.arange(6)[own], 2)
        for step in range(2):
            for i, part in enumerate(parts):
                method.backward(WINDOWS[part], 1 / 48, Noise(0, step, part), last=i == 1)
            method.step(0.01)
        predictions = replicated_memory(method.model.parameters, method.recipe, shape_of(recompute), len(parts[0]))
        return [tuple(row) for row in memory_rows(ledger, predictions)], size, ledger.now.of("activations")


@pytest.mark.slow(but=4)
@pytest.mark.parametrize("short", precisions())
@pytest.mark.parametrize("optimizer", optimizers())
def test_every_rule_and_precision(spmd, short, optimizer):
    recipe = Recipe(optimizer, precision=precision(short))
    for found, size, left in spmd(rows, 2, lambda model, comm: DataParallel(model, comm, recipe, 0)):
        e, m = recipe.precision.dtype.itemsize, recipe.precision.master_dtype.itemsize
        by = {category: rest for category, *rest in found}
        lasting = ("parameters", "gradients", "optimizer state", "activations")
        for category in lasting:
            assert by[category][0] == by[category][1], category
        assert by["parameters"] == by["gradients"] == [e * size] * 3
        masters = 4 * size if e == 2 else 0
        inside = 2 * 12 * 16**2 if optimizer == "muon" else 0  # which has no mean square of them
        papers = {"sgd": m, "lars": m, "adamw8bit": 2}.get(optimizer, 2 * m) * size - inside * m + masters
        assert by["optimizer state"][2] == papers
        assert left == 0
        assert by["all at once"][0] >= sum(by[category][0] for category in lasting)


@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
def test_recomputation(spmd, recompute):
    recipe = Recipe("adamw", precision=precision("bf16"))
    for found, *_ in spmd(rows, 2, lambda model, comm: DataParallel(model, comm, recipe, 0), recompute):
        by = {category: rest for category, *rest in found}
        assert by["activations"][0] == by["activations"][1]


def test_the_papers_16_bytes_a_weight():
    """Mixed precision with Adam: 2 + 2 + 12."""
    found = replicated_memory(1000, Recipe("adamw", precision=precision("fp16")))
    assert sum(each.num_bytes for each in found.values()) == 16_000
    assert found["optimizer state"].num_bytes == 12_000


def test_sgd_without_momentum_remembers_nothing():
    assert optimizer_state(Recipe("sgd", momentum=0), 1000).num_bytes == 0
    assert optimizer_state(Recipe("sgd", momentum=0, precision=precision("bf16")), 1000).num_bytes == 4000


def test_scales_of_8_bit_moments():
    assert optimizer_state(Recipe("adamw8bit"), 2048 * 3 + 1) == (2 * 6145 + 4 * 8, 2 * 6145)


def test_what_is_neither_used_nor_promised_has_no_row():
    assert [category for category, *_ in memory_rows(Ledger(lambda: 0.0), {})] == ["all at once"]


def test_only_the_server_has_state(spmd):
    found = spmd(rows, 3, lambda model, comm: Centralized(model, comm, Recipe("adamw"), 0))
    for rank, (each, size, _) in enumerate(found):
        measured = {category: number for category, number, *_ in each}
        assert measured["optimizer state"] == (8 * size if rank == 0 else 0)


def test_residuals_are_buffers(spmd):
    plain = spmd(rows, 2, lambda model, comm: Compressed(model, comm, Recipe(), 0, "none"))
    top = spmd(rows, 2, lambda model, comm: Compressed(model, comm, Recipe(), 0, "top-k"))
    for (without, size, _), (with_, *_) in zip(plain, top, strict=True):
        buffers = [{category: number for category, number, *_ in each}["buffers"] for each in (without, with_)]
        assert buffers[1] - buffers[0] == 4 * size


@pytest.mark.parametrize("name", compressions())
def test_all_that_a_compressor_keeps_is_counted(spmd, name):
    def program(comm):
        ledger = Ledger(comm.clock)
        with recorded(ledger):
            method = Compressed(gpt(shape_of("none")), comm, Recipe(), 0, name)
            method.backward(WINDOWS, 1 / 48)
            method.step(0.01)
            return ledger.now.of("buffers"), sum(x.nbytes for x in method.compressor.state.values())

    for counted, kept in spmd(program, 2):
        assert counted == kept
