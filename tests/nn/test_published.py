import pytest

from simdist.errors import UnknownNameError
from simdist.nn import gpt, published, published_names
from simdist.nn.formulas import num_active_parameters, num_parameters

COUNTED = {
    "gpt2": 124_439_808,
    "gpt2-medium": 354_823_168,
    "gpt2-large": 774_030_080,
    "gpt2-xl": 1_557_611_200,
    "llama2-7b": 6_738_415_616,
    "llama2-13b": 13_015_864_320,
    "llama2-70b": 68_976_648_192,
    "llama3-8b": 8_030_261_248,
    "llama3-70b": 70_553_706_496,
    "llama3-405b": 405_853_388_800,
    "mistral-7b": 7_241_732_096,
    "mixtral-8x7b": 46_702_792_704,
    "mixtral-8x22b": 140_620_634_112,
    "qwen2.5-7b": 7_615_616_512,
    "qwen2.5-72b": 72_706_203_648,
    "qwen3-8b": 8_190_735_360,
    "qwen3-32b": 32_762_123_264,
    "qwen3-30b-a3b": 30_532_122_624,
    "qwen3-235b-a22b": 235_093_634_560,
    "deepseek-v2-lite": 15_706_484_224,
    "deepseek-v2": 235_741_434_880,
    "deepseek-v3": 671_026_419_200 - 58 * 256,  # less a number for each expert, which steers its load
}
"""The numbers in the files of weights; DeepSeek-V3's also hold a module that predicts a second token."""


@pytest.mark.parametrize(("name", "size"), COUNTED.items())
def test_parameters_are_as_many_as_the_weights_to_download(name, size):
    assert num_parameters(published(name)) == gpt(published(name)).parameters.size == size


def test_gpt3_whose_weights_are_not_there_to_be_counted():
    assert round(num_parameters(published("gpt3-175b")) / 1e9, 1) == 174.6
    assert {*COUNTED, "gpt3-175b"} == set(published_names())


@pytest.mark.parametrize(
    ("name", "billions"),
    [("mixtral-8x7b", 12.9), ("mixtral-8x22b", 39.2), ("qwen3-30b-a3b", 3.35), ("qwen3-235b-a22b", 22.2)],
)
def test_parameters_that_a_token_of_a_mixture_meets(name, billions):
    assert num_active_parameters(published(name)) / 1e9 == pytest.approx(billions, abs=0.05)


@pytest.mark.parametrize(("name", "billions"), [("deepseek-v2-lite", 2.4), ("deepseek-v2", 21), ("deepseek-v3", 37)])
def test_the_same_of_deepseeks_without_the_table_of_tokens(name, billions):
    shape = published(name)
    assert (num_active_parameters(shape) - shape.vocabulary * shape.width) / 1e9 == pytest.approx(billions, rel=0.03)


def test_an_unknown_model_is_told_with_the_nearest():
    with pytest.raises(UnknownNameError, match="unknown published model 'llama3-7b'; did you mean 'llama"):
        published("llama3-7b")
