"""What travels: the papers' volumes, exactly, and chunk by chunk where sizes do not divide; and what memory moves."""

import pytest
from harness import virtual
from zero_training import BUCKET_BYTES, MODELS, adamw, trained

from simdist.arrays import Meter, metered
from simdist.collectives import cost
from simdist.parallel import DataParallel
from simdist.parallel.zero import ZeRO
from simdist.parallel.zero.formulas import paper_elements

ITEM_BYTES = {"float64": 8, "float32": 4, "bf16": 2}


def sent_bytes(comm, model, kind, zero_stage, micro_batches):
    """By this rank in one step, and the sizes of the units."""
    method = ZeRO(MODELS[model](), comm, adamw(kind), 1, zero_stage, bucket_bytes=BUCKET_BYTES, algorithm="ring")
    comm.barrier()
    first = len(comm.recorder.rows)
    trained(method, model, 1, micro_batches=micro_batches)
    spans = comm.recorder.spans()[first:]
    return sum(s.bytes for s in spans if s.name == "send"), [unit.room for unit in method.units]


def check_papers(found, p, zero_stage, model, kind):
    size = MODELS[model]().parameters.size
    for sent, rooms in found:
        assert all(room % p == 0 for room in rooms) and sum(rooms) == size
        assert sent == paper_elements(size, p, zero_stage) * ITEM_BYTES[kind]


@pytest.mark.parametrize("p", [1, 2, 4, 8])
@pytest.mark.parametrize("zero_stage", [1, 2, 3])
@pytest.mark.parametrize("model", MODELS)
def test_a_step_sends_what_the_papers_say(p, zero_stage, model):
    found = virtual(sent_bytes, p, model, "float64", zero_stage, 1)
    check_papers(found, p, zero_stage, model, "float64")


@pytest.mark.parametrize("zero_stage", [1, 2, 3])
@pytest.mark.parametrize("kind", ITEM_BYTES)
def test_real_ranks_send_it_in_every_precision(spmd, zero_stage, kind):
    check_papers(spmd(sent_bytes, 4, "gpt", kind, zero_stage, 1), 4, zero_stage, "gpt", kind)


@pytest.mark.parametrize("zero_stage", [1, 2, 3])
def test_sizes_that_do_not_divide_cost_what_their_chunks_do(zero_stage):
    for rank, (sent, rooms) in enumerate(virtual(sent_bytes, 3, "gpt", "float64", zero_stage, 1)):
        reduced, gathered = (
            sum(cost(name, "ring", ranks=3, rank=rank, num_bytes=8 * room, itemsize=8).sent_bytes for room in rooms)
            for name in ("reduce_scatter", "all_gather")
        )
        assert sent == reduced + (2 if zero_stage == 3 else 1) * gathered


@pytest.mark.parametrize(("zero_stage", "halves"), [(1, 2), (2, 4), (3, 9)])
def test_micro_batches_cost_what_the_docstring_says(zero_stage, halves):
    size = MODELS["gpt"]().parameters.size
    for sent, _ in virtual(sent_bytes, 4, "gpt", "float64", zero_stage, 3):
        assert sent == halves * 8 * size * 3 / 4


@pytest.mark.parametrize(("zero_stage", "passes"), [(0, 7 + 1), (1, 7 + 2 + 1 + 2), (2, 7 + 1 + 2), (3, 7 + 1)])
def test_what_a_step_moves_in_memory(zero_stage, passes):
    """AdamW's seven passes; gradients come together in stage 1, and are cleared; 1 and 2 copy masters into weights."""

    def program(comm):
        if zero_stage:
            method = ZeRO(MODELS["mlp"](), comm, adamw(), 1, zero_stage, bucket_bytes=BUCKET_BYTES)
        else:
            method = DataParallel(MODELS["mlp"](), comm, adamw(), 1)
        with metered(meter := Meter()):
            method.step(0.01)
        return meter.bytes

    assert virtual(program, 1) == [passes * 8 * MODELS["mlp"]().parameters.size]
