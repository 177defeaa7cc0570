import pytest

from simdist.training import Config
from simdist.training.models import build, models


@pytest.mark.parametrize("name", models())
def test_every_model_is_built_from_a_config(name):
    assert build(Config(model=name)).parameters.size > 0


def test_the_sizes_are_those_of_the_config():
    small = Config(context_bytes=3, embedding_width=5, hidden_width=7, hidden_layers=2)
    expected = 256 * 5 + (15 * 7 + 7) + (7 * 7 + 7) + (7 * 256 + 256)
    assert build(small).parameters.size == expected
