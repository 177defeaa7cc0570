"""Compressed training: it learns, it saves, the record shows what it counts, and checkpoints lose nothing."""

import numpy as np
import pytest
from harness import virtual

from simdist.arrays import partition
from simdist.errors import ArrayError, UnknownNameError
from simdist.nn import Shape, gpt, mlp
from simdist.parallel import DataParallel, Recipe
from simdist.parallel.compressed import Compressed, compare
from simdist.parallel.compression import compressions
from simdist.parallel.precision import precision

LOSSY = [name for name in compressions() if name != "none"]
SETTINGS = {"none": {}, "top-k": {"share": 0.1}, "8-bit": {"block": 64}, "power-sgd": {"rank": 2}}
EXACT = precision("float64")
every_lossy = pytest.mark.parametrize("name", LOSSY)

MODELS = {
    "mlp": lambda: mlp(context_bytes=5, embedding_width=4, hidden_width=32, hidden_layers=1),
    "gpt": lambda: gpt(Shape(layers=1, width=16, heads=2, context=5)),
}
RECIPES = {"mlp": (Recipe(precision=EXACT), 0.3), "gpt": (Recipe(precision=EXACT), 0.1)}


def text(windows):
    """Windows of a text in which each letter hangs on the one before: there is something to learn."""
    rng = np.random.default_rng(4)
    letters = np.cumsum(rng.choice([1, 2], p=[0.8, 0.2], size=(windows, 6)), axis=1) + rng.integers(0, 20, (windows, 1))
    return (97 + letters % 20).astype(np.uint8)


WINDOWS = text(64)
FRESH = text(64 * 120).reshape(-1, 64, 6)


def train(comm, model, compression, steps=120):
    """The trained method, its mean loss on the batch, and the bytes of its steps on the record."""
    recipe, rate = RECIPES[model]
    method = Compressed(MODELS[model](), comm, recipe, 1, compression, **SETTINGS[compression])
    own, first = partition(len(WINDOWS), comm.size)[comm.rank], len(comm.recorder.rows)
    targets = len(WINDOWS) * method.model.targets_per_window
    for step in range(steps):
        method.backward(FRESH[step][own], 1 / targets)
        method.step(rate * (1 - step / steps))
    sent = sum(span.bytes for span in comm.recorder.spans()[first:] if span.name == "send")
    return method, method.loss(WINDOWS) / targets, sent


def compared(comm, model):
    sent = {}

    def one(name):
        method, loss, sent[name] = train(comm, model, name)
        return method, loss

    return [(*each, sent[each.compression], str(each)) for each in compare(one, compressions())]


@pytest.mark.slow(but=1)
@pytest.mark.parametrize("model", MODELS)
def test_all_of_them_learn_with_fewer_bytes(model):
    """On virtual ranks only: real ones come to the same, and would take seconds each."""
    found = virtual(compared, 3, model)
    for rank, rows in enumerate(found):
        assert [row[0] for row in rows] == ["none", "top-k", "8-bit", "power-sgd"]
        for row, (name, sent, plain, loss, plain_loss, recorded, words) in zip(found[0], rows, strict=True):
            assert sent == recorded
            assert loss == row[3], "all ranks have the same weights"
            assert abs(loss - plain_loss) < {"none": 1e-12, "top-k": 0.02, "8-bit": 0.002, "power-sgd": 0.12}[name]
            assert sent < {"none": 1.01, "top-k": 0.25, "8-bit": 0.2, "power-sgd": 0.45}[name] * plain, (name, rank)
            assert words.startswith(f"{name}: {sent:,} of {plain:,} bytes sent, {1 - sent / plain:.1%} saved; ")
        assert rows[0][4] < 0.7  # log 256 is 5.5; the letters themselves have 0.5 nats


def weights(comm, compression, steps=4):
    if compression == "ddp":
        recipe, rate = RECIPES["mlp"]
        method = DataParallel(MODELS["mlp"](), comm, recipe, 1)
        for step in range(steps):
            method.backward(FRESH[step][partition(64, comm.size)[comm.rank]], 1 / 64)
            method.step(rate * (1 - step / steps))
        return method.weights
    return train(comm, "mlp", compression, steps)[0].weights


def test_without_compression_it_is_data_parallelism(spmd):
    for ours, theirs in zip(spmd(weights, 3, "none"), spmd(weights, 3, "ddp"), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-12)


def stop_and_go(comm, compression):
    """What has been put off before and after the state went through `vectors`, here and as all ranks add up."""
    method, *_ = train(comm, "mlp", compression, 7)
    other, *_ = train(comm, "mlp", compression, 2)  # which has put something off, too
    vectors = method.vectors()
    other.restore(vectors, method.numbers())
    (shard,) = vectors["compression.put_off/"]
    same = np.array_equal(method.weights, other.weights)
    own = partition(len(method.weights), comm.size)[comm.rank]
    assert (shard.start, len(shard.data)) == (own.start, own.stop - own.start)
    return same, method.compressor.put_off(comm.rank), other.compressor.put_off(comm.rank)


@every_lossy
@pytest.mark.parametrize("p", [1, 2, 3])
def test_a_checkpoint_keeps_what_all_have_put_off(spmd, name, p):
    found = spmd(stop_and_go, p, name)
    before, after = (sum(each[i] for each in found) for i in (1, 2))
    assert all(same for same, *_ in found)
    assert np.abs(before).max() > 0
    np.testing.assert_allclose(after, before, rtol=1e-12, atol=1e-15)


def test_what_cannot_be(spmd):
    def program(comm, short, compression):
        Compressed(MODELS["mlp"](), comm, Recipe(precision=precision(short)), 1, compression)

    with pytest.raises(ArrayError, match="float32 or float64"):
        spmd(program, 2, "bf16", "top-k")
    with pytest.raises(UnknownNameError, match="did you mean 'top-k'"):
        spmd(program, 2, "float32", "topk")
