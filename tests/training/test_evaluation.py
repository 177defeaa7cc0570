import numpy as np
import pytest

from simdist.comm.solo import SoloCommunicator
from simdist.nn import Shape, gpt, mlp
from simdist.parallel import DataParallel, Recipe
from simdist.parallel.precision import precision
from simdist.training.evaluation import sample

PROMPTS = np.frombuffer(b"the quick brown ", np.uint8).reshape(2, 8)
EXACT = Recipe(precision=precision("float64"))
MODELS = {
    "gpt": lambda: gpt(Shape(layers=1, width=8, heads=2, context=8)),
    "mlp": lambda: mlp(context_bytes=8, embedding_width=4, hidden_width=8, hidden_layers=1),
}


def write(comm, name, temperature, seed=3, num_bytes=12):
    """Texts of a model that has learned nothing, made bolder: its logits are next to 0."""
    method = DataParallel(MODELS[name](), comm, EXACT, seed=5)
    method.weights[...] *= 5
    return sample(method, PROMPTS, num_bytes, temperature, seed)


@pytest.mark.parametrize("name", MODELS)
def test_all_ranks_get_one_text_and_any_number_of_them_the_same(spmd, name):
    alone = spmd(write, 1, name, 0.8)[0]
    assert alone.shape == (2, 12) and alone.dtype == np.uint8
    for text in spmd(write, 3, name, 0.8):
        np.testing.assert_array_equal(text, alone)


@pytest.mark.parametrize("name", MODELS)
def test_without_temperature_it_is_the_likeliest_byte(spmd, name):
    def check(comm):
        method = DataParallel(MODELS[name](), comm, EXACT, seed=5)
        method.weights[...] *= 5
        text = sample(method, PROMPTS, 12, 0.0, 3)
        whole = np.concatenate([PROMPTS, text], axis=1)
        seen = [whole[:, i : i + 8] for i in range(12)]
        return text, [method.model.layers.forward(window)[0] for window in seen]

    text, outputs = spmd(check, 1)[0]
    for i, y in enumerate(outputs):
        last = y if y.ndim == 2 else y[:, -1]
        np.testing.assert_array_equal(text[:, i], last.argmax(axis=1))


def test_next_to_no_temperature_is_none(spmd):
    cold, none = (spmd(write, 1, "gpt", temperature)[0] for temperature in (1e-320, 0.0))
    np.testing.assert_array_equal(cold, none)


def test_another_seed_writes_another_text(spmd):
    texts = [spmd(write, 1, "gpt", 1.0, seed)[0].tobytes() for seed in (1, 2, 1)]
    assert texts[0] == texts[2] != texts[1]


class Loaded:
    """Says the same of every prompt."""

    comm = SoloCommunicator()

    def __init__(self, chances):
        self.row = np.log(chances)

    def logits(self, tokens):
        return np.tile(self.row, (len(tokens), 1))


def test_bytes_come_as_often_as_they_are_likely():
    method = Loaded([0.5, 0.2, 0.3])
    text = sample(method, np.zeros((20_000, 1), np.uint8), 1, 1.0, 0)
    np.testing.assert_allclose(np.bincount(text[:, 0]) / len(text), [0.5, 0.2, 0.3], atol=0.015)
    colder = sample(method, np.zeros((20_000, 1), np.uint8), 1, 0.5, 0)
    np.testing.assert_allclose(np.bincount(colder[:, 0]) / len(colder), np.array([25, 4, 9]) / 38, atol=0.015)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_of_more_tokens_than_bytes_only_these_are_drawn(temperature):
    """Of 300 tokens the last 44 are the likeliest by far, and no text."""
    chances = np.full(300, 1e-6)
    chances[256:], chances[65] = 0.02, 0.1
    text = sample(Loaded(chances), np.zeros((200, 1), np.uint8), 1, temperature, 0)
    assert set(text[:, 0]) == {65}
