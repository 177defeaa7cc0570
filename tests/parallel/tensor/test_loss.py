"""Cross-entropy with the vocabulary on several ranks, against the whole one's."""

import numpy as np
import pytest

from simdist.comm.mesh import Mesh
from simdist.nn import CrossEntropy
from simdist.parallel.sequence import Even, Zigzag
from simdist.parallel.tensor import VocabularyParallelCrossEntropy

V = 24
LOGITS = np.random.default_rng(0).normal(size=(3, 4, V)) * 30
TARGETS = np.random.default_rng(1).integers(0, V, (3, 4), dtype=np.uint8)


def run(comm, logits, dtype):
    part = np.ascontiguousarray(logits.reshape(3, 4, comm.size, -1)[:, :, comm.rank]).astype(dtype)
    loss = VocabularyParallelCrossEntropy(comm)
    total, context = loss.forward(part, TARGETS)
    return total, loss.backward(context, 0.5), loss.last(part), loss.last(part, -2)


@pytest.mark.parametrize("p", [1, 2, 3, 4, 8])
@pytest.mark.parametrize(("dtype", "limit"), [(np.float64, 1e-13), (np.float32, 1e-5), (np.float16, 2e-3)])
def test_against_the_whole(spmd, p, dtype, limit):
    logits = LOGITS.astype(dtype)
    whole = CrossEntropy()
    total, context = whole.forward(logits.astype(float), TARGETS)
    found = spmd(run, p, logits, dtype)
    assert {loss for loss, *_ in found} == {found[0][0]}, "the same bits on every rank"
    assert found[0][0] == pytest.approx(total, rel=limit)
    derivatives = np.concatenate([d for _, d, *_ in found], axis=2)
    assert derivatives.dtype == dtype
    np.testing.assert_allclose(derivatives, whole.backward(context, 0.5), rtol=limit, atol=limit)
    for *_, last, before in [*found, (whole.last(logits), whole.last(logits, -2))]:
        np.testing.assert_array_equal(last, logits[:, -1])
        np.testing.assert_array_equal(before, logits[:, -2])


def test_logits_that_no_exponential_could_take(spmd):
    """Each rank's own largest logit would not do for the shift: on one they are all far below the others'."""
    far = LOGITS + np.repeat([0.0, 5000.0, -9000.0], V // 3)
    total = CrossEntropy().forward(far, TARGETS)[0]
    for loss, d, *_ in spmd(run, 3, far, np.float64):
        assert loss == pytest.approx(total, rel=1e-13)
        assert np.isfinite(d).all()


def test_a_batch_of_nothing(spmd):
    def program(comm):
        loss = VocabularyParallelCrossEntropy(comm)
        total, context = loss.forward(np.empty((0, 4, 8)), np.empty((0, 4), np.uint8))
        return total, loss.backward(context, 1.0).shape

    assert spmd(program, 3) == [(0.0, (0, 4, 8))] * 3


@pytest.mark.parametrize("split", [Even, Zigzag])
@pytest.mark.parametrize(("sp", "tp"), [(2, 1), (2, 2), (2, 3)])
def test_the_last_token_of_a_text_that_is_split_too(spmd, split, sp, tp):
    def program(comm):
        mesh = Mesh(comm, sp=sp, tp=tp)
        texts = split(mesh.sp)
        part = texts.part(LOGITS).reshape(3, 4 // sp, tp, -1)[:, :, mesh.tp.rank]
        loss = VocabularyParallelCrossEntropy(mesh.tp, texts)
        return [loss.last(np.ascontiguousarray(part), place) for place in (-1, -2, -3, -4)]

    for found in spmd(program, sp * tp):
        np.testing.assert_array_equal(found, [LOGITS[:, place] for place in (-1, -2, -3, -4)])
