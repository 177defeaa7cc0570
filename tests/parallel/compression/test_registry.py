"""Compressions by name: those that there are, and one of one's own."""

from copy import deepcopy
from textwrap import dedent

import numpy as np
import pytest

import simdist as sd
from simdist.errors import ArgumentError, UnknownNameError
from simdist.nn import mlp
from simdist.parallel import Compressed, Recipe
from simdist.parallel.compression import Compressor, compression_defaults, compressions, compressor, named, registry
from simdist.training import Config, Trainer
from simdist.training.methods import distribute
from simdist.training.report import report

WINDOWS = np.random.default_rng(0).integers(256, size=(6, 5), dtype=np.uint8)


class Every(Compressor):
    """Sends one item of so many, another one each time; all ranks the same, so that an all-reduce will do."""

    name = "every"

    def __init__(self, like, block):
        super().__init__(like)
        self.state = {"residual": np.zeros_like(like)}
        self.block, self.turn = block, 0

    def _reduce(self, x, comm):
        self._add_to_residual(x)
        due = slice(self.turn % self.block, None, self.block)
        part = self.state["residual"][due].copy()
        self.state["residual"][due] = 0
        self._all_reduce(part, comm)
        x[...] = 0
        x[due] = part
        self.turn += 1


@pytest.fixture
def registered(monkeypatch):
    """What a test registers is forgotten after it."""
    monkeypatch.setattr(registry, "_COMPRESSIONS", deepcopy(registry._COMPRESSIONS))


@pytest.fixture
def every(registered):
    @named("every", block=4)
    def make(like, parameters, block):
        return Every(like, block)


def test_the_names():
    assert compressions() == ["none", "top-k", "8-bit", "power-sgd"]
    assert [compression_defaults(s) for s in ("share", "block", "rank")] == [
        {"top-k": 0.01},
        {"8-bit": 1024},
        {"power-sgd": 2},
    ]


def shown():
    """The compressor that the docstring shows."""
    code = dedent(Compressor.__doc__.partition("collectives send:\n")[2].partition("    Args:")[0])
    names = {"Compressor": Compressor, "np": np}
    exec(code, names)
    return names["Half"]


def test_the_one_that_the_docstring_shows_counts_what_it_sends():
    half = shown()

    def program(comm):
        own, x, total = half(np.zeros(5)), np.arange(5) / 3 + comm.rank, np.zeros(5)
        for _ in range(4):
            part = x.copy()
            own.reduce(part, comm)
            total += part
        return total, own.put_off(comm.rank), own.sent_bytes

    run = sd.run(program, 3)
    totals, late, sent = zip(*run.results, strict=True)
    assert np.add(totals[0], sum(late)) == pytest.approx(4 * (np.arange(5) + 3), abs=1e-12)
    assert sent == tuple(sum(span.bytes for span in run.trace.sends(rank)) for rank in range(3))


def test_the_bytes_of_its_messages_are_predicted(registered, tmp_path):
    """A vector is cut between items of two bytes, here not between those of eight."""
    named("half")(lambda like, parameters: shown()(like))
    (tmp_path / "text").write_bytes(bytes(range(256)) * 8)
    given = {"precision": "float64", "hidden_layers": 1, "hidden_width": 6, "embedding_width": 2, "context_bytes": 2}
    given |= {"data": str(tmp_path / "text"), "steps": 1, "validation_windows": 8, "compress": "half"}

    def program(comm):
        trainer = Trainer(comm, Config(**given))
        (line,) = trainer.run()
        trace = trainer.trace()
        return trace and report(trainer, line, trace, comm.cluster).rows[:2]

    rows = sd.run(program, 2).results[0]
    assert [row.measured for row in rows] == [row.predicted for row in rows]


def test_one_of_ones_own_in_a_training_run(every):
    config = Config(compress="every")  # whose class was there before it
    assert (config.method, config.compress_block, config.compress_share) == ("compressed", 4, None)
    with pytest.raises(ArgumentError, match="compress_rank is 3, and compress every; compress_rank is for compress"):
        Config(compress="every", compress_rank=3)

    def trained(comm, config):
        model = mlp(context_bytes=4, embedding_width=4, hidden_width=8, hidden_layers=1)
        method = distribute(model, comm, config)
        for _ in range(config.compress_block or 1):
            method.train([np.array_split(WINDOWS, comm.size)[comm.rank]], 1 / WINDOWS.size, 0.1)
        return method.compressor.saved_share, method.weights.copy()

    for block in (1, 3):
        config = Config(compress="every", compress_block=block, optimizer="sgd", momentum=0.0)
        (saved, weights), (_, others) = sd.run(trained, 2, args=(config,)).results
        assert np.array_equal(weights, others)
        assert saved == pytest.approx(1 - 1 / block, abs=1e-3)
    plain = sd.run(trained, 1, args=(Config(compress="none", optimizer="sgd", momentum=0.0),)).results[0][1]
    every_time = sd.run(trained, 2, args=(Config(compress="every", compress_block=1, momentum=0.0),)).results[0][1]
    assert every_time == pytest.approx(plain, abs=1e-6)


def test_limits(every):
    model, like = mlp(4, 4, 8, 1), np.zeros(10, np.float32)
    with pytest.raises(UnknownNameError, match="unknown compression 'top-q'; did you mean 'top-k'"):
        compressor("top-q", like, model.parameters)
    with pytest.raises(UnknownNameError, match="unknown setting of compression top-k 'block'"):
        compressor("top-k", like, model.parameters, block=3)
    with pytest.raises(UnknownNameError, match="unknown setting of compression x 'width'"):
        named("x", width=3)
    (error,) = sd.run(lambda comm: _refused(comm, model), 1).results
    assert "unknown setting of compression 8-bit 'share'" in error


def test_what_is_no_compressor(every):
    named("three")(lambda like, parameters: 3)
    with pytest.raises(ArgumentError, match="what makes three returns an int; needs a Compressor"):
        compressor("three", np.zeros(10, np.float32), mlp(4, 4, 8, 1).parameters)


def test_a_sum_that_is_returned_and_not_left():
    class Returned(Every):
        def _reduce(self, x, comm):
            super()._reduce(x, comm)
            return x

    def reduced(comm):
        with pytest.raises(ArgumentError, match="what every reduces by returns an ndarray; needs None, and the sum in"):
            Returned(np.zeros(10), 2).reduce(np.ones(10), comm)

    sd.run(reduced, 2)


def _refused(comm, model):
    with pytest.raises(UnknownNameError) as caught:
        Compressed(model, comm, Recipe(), 0, "8-bit", share=0.5)
    return str(caught.value)
