from dataclasses import replace

import pytest

from simdist.errors import UnknownNameError
from simdist.nn import Shape, gpt, is_published, published, published_names
from simdist.nn.formulas import num_active_parameters, num_parameters

COUNTED = {
    "gpt2": 124_439_808,
    "gpt2-medium": 354_823_168,
    "gpt2-large": 774_030_080,
    "gpt2-xl": 1_557_611_200,
    "starcoder-15b": 15_517_456_384,
    "llama-7b": 6_738_415_616,
    "llama-13b": 13_015_864_320,
    "llama-30b": 32_528_943_616,
    "llama-65b": 65_285_660_672,
    "llama2-7b": 6_738_415_616,
    "llama2-13b": 13_015_864_320,
    "llama2-70b": 68_976_648_192,
    "codellama-34b": 33_743_970_304,
    "yi-6b": 6_061_035_520,
    "yi-34b": 34_388_917_248,
    "tinyllama-1.1b": 1_100_048_384,
    "llama3.2-1b": 1_235_814_400,
    "llama3.2-3b": 3_212_749_824,
    "llama3-8b": 8_030_261_248,
    "llama3-70b": 70_553_706_496,
    "llama3-405b": 405_853_388_800,
    "mistral-7b": 7_241_732_096,
    "mistral-nemo-12b": 12_247_782_400,
    "mistral-large-123b": 122_610_069_504,
    "mistral-small-24b": 23_572_403_200,
    "codestral-22b": 22_247_282_688,
    "mixtral-8x7b": 46_702_792_704,
    "mixtral-8x22b": 140_620_634_112,
    "dbrx-132b": 131_596_523_520,
    "phi3-mini-3.8b": 3_821_079_552,
    "phi3-medium-14b": 13_960_238_080,
    "phi4-14b": 14_659_507_200,
    "smollm2-135m": 134_515_008,
    "smollm2-360m": 361_821_120,
    "smollm2-1.7b": 1_711_376_384,
    "gemma-2b": 2_506_172_416,
    "gemma-7b": 8_537_680_896,
    "qwen2.5-0.5b": 494_032_768,
    "qwen2.5-1.5b": 1_543_714_304,
    "qwen2.5-3b": 3_085_938_688,
    "qwen2.5-7b": 7_615_616_512,
    "qwen2.5-14b": 14_770_033_664,
    "qwen2.5-32b": 32_763_876_352,
    "qwen2.5-72b": 72_706_203_648,
    "qwen3-0.6b": 596_049_920,
    "qwen3-1.7b": 1_720_574_976,
    "qwen3-4b": 4_022_468_096,
    "qwen3-8b": 8_190_735_360,
    "qwen3-14b": 14_768_307_200,
    "qwen3-32b": 32_762_123_264,
    "qwen3-30b-a3b": 30_532_122_624,
    "qwen3-235b-a22b": 235_093_634_560,
    "deepseek-7b": 6_910_365_696,
    "deepseek-moe-16b": 16_375_728_128,
    "deepseek-v2-lite": 15_706_484_224,
    "deepseek-v2": 235_741_434_880,
    "deepseek-v3": 671_026_419_200 - 58 * 256,  # less a number for each expert, which steers its load
}
"""The numbers in the files of weights; DeepSeek-V3's also hold a module that predicts a second token."""


@pytest.mark.parametrize(("name", "size"), COUNTED.items())
def test_parameters_are_as_many_as_the_weights_to_download(name, size):
    assert num_parameters(published(name)) == gpt(published(name)).parameters.size == size


def test_what_reports_say_of_models_whose_weights_are_not_counted_here():
    told = {"gpt3-175b": 174.6, "mt-nlg-530b": 529.6, "kimi-k2": 1026.4, "deepseek-67b": 67.4, "gpt-oss-120b": 116.8}
    told |= {"gpt-oss-20b": 20.9, "opt-175b": 174.6, "turing-nlg-17b": 17.2, "nemotron4-340b": 341.1}
    assert {name: round(num_parameters(published(name)) / 1e9, 1) for name in told} == told
    assert {*COUNTED, *NEARLY, *OPT, *PYTHIA, *BLOOM, *GEMMA3, *OLMO, *told, *LLAMA4, *GLM} == set(published_names())


NEARLY = {"gpt3-1.3b": 1.32, "gpt3-2.7b": 2.65, "gpt3-6.7b": 6.66, "gpt3-13b": 12.85}  # arXiv 2005.14165, table D.1
NEARLY |= {"gpt3-125m": 0.125, "gpt3-350m": 0.356, "gpt3-760m": 0.76}  # the same
NEARLY |= {"palm-8b": 8.63, "palm-62b": 62.50, "palm-540b": 540.35}  # arXiv 2204.02311, table 1
NEARLY |= {"bloom-7b": 7.069, "bloom-176b": 176.247, "falcon-7b": 6.922, "falcon-40b": 41.303, "falcon-180b": 179.523}
NEARLY |= {"gpt-neox-20b": 20.555, "gemma2-2b": 2.614, "gemma2-9b": 9.242, "gemma2-27b": 27.227}
NEARLY |= {"grok-1-314b": 314, "opt-66b": 65.7, "gpt-j-6b": 6.053, "nemotron4-15b": 15.7}
NEARLY |= {"mpt-7b": 6.649, "mpt-30b": 29.96, "olmoe-7b": 6.919, "qwen1.5-moe-14b": 14.316}
"""Billions of parameters; whose small parts differ."""


@pytest.mark.parametrize(("name", "told"), NEARLY.items())
def test_models_whose_small_parts_differ(name, told):
    assert num_parameters(published(name)) / 1e9 == pytest.approx(told, rel=0.006)


OPT = {
    "opt-125m": 125_239_296,
    "opt-1.3b": 1_315_758_080,
    "opt-2.7b": 2_651_596_800,
    "opt-6.7b": 6_658_473_984,
    "opt-13b": 12_853_473_280,
    "opt-30b": 29_974_540_288,
}


@pytest.mark.parametrize(("name", "size"), OPT.items())
def test_opt_has_two_more_places(name, size):
    assert num_parameters(published(name)) + 2 * published(name).width == size


PYTHIA = {
    "pythia-70m": 70_426_624,
    "pythia-160m": 162_322_944,
    "pythia-410m": 405_334_016,
    "pythia-1b": 1_011_781_632,
    "pythia-1.4b": 1_414_647_808,
    "pythia-2.8b": 2_775_208_960,
    "pythia-6.9b": 6_857_302_016,
    "pythia-12b": 11_846_072_320,
}
BLOOM = {
    "bloom-560m": 559_214_592,
    "bloom-1.1b": 1_065_314_304,
    "bloom-1.7b": 1_722_408_960,
    "bloom-3b": 3_002_557_440,
}
GEMMA3 = {
    "gemma3-1b": 999_885_952,
    "gemma3-4b": 3_880_263_168,
    "gemma3-12b": 11_766_034_176,
    "gemma3-27b": 27_009_346_304,
}
"""Without the encoder of pictures."""
OLMO = {
    "olmo-1b": 1_176_764_416,
    "olmo-7b": 6_888_095_744,
    "olmo2-7b": 7_298_617_344,
    "olmo2-13b": 13_716_198_400,
    "olmo2-32b": 32_234_279_936,
}


@pytest.mark.parametrize(("name", "size"), OLMO.items())
def test_norms_of_olmo(name, size):
    """The first has none with gains; the second a gain for each feature of all heads' queries and keys."""
    shape = published(name)
    of_norms = (2 * shape.layers + 1) * shape.width
    features = shape.query_width + shape.key_value_width // 2
    more = shape.layers * (features - 2 * shape.head_features) if shape.qk_norm else -of_norms
    assert num_parameters(shape) + more == size


@pytest.mark.parametrize(("name", "size"), [*PYTHIA.items(), *BLOOM.items(), *GEMMA3.items()])
def test_small_parts_that_are_left_out(name, size):
    """Pythia has no table of places, BLOOM neither, but a norm after the words, and Gemma 3 two more norms a block."""
    shape = published(name)
    places = shape.context * shape.width
    more = -places if name in PYTHIA else 2 * shape.width - places if name in BLOOM else 2 * shape.layers * shape.width
    assert num_parameters(shape) + more == size


LLAMA4 = {"llama4-scout": (109, 17), "llama4-maverick": (400, 17)}
"""Billions of parameters, and of those that a token meets; with those of an encoder of pictures, which is small."""


@pytest.mark.parametrize(("name", "told"), LLAMA4.items())
def test_what_their_makers_say_of_llama_4(name, told):
    shape = published(name)
    found = num_parameters(shape) / 1e9, num_active_parameters(shape) / 1e9
    assert found == pytest.approx(told, rel=0.015)


@pytest.mark.parametrize(
    ("layers", "width", "billions"), [(24, 2048, 52), (16, 3584, 107.7), (40, 4096, 349.0), (58, 8192, 2024.0)]
)
def test_mixtures_of_128_experts_in_every_other_block(layers, width, billions):
    """DeepSpeed-MoE's models, of GPT-3's shape (Rajbhandari et al. 2022, arXiv 2201.05596)."""
    shape = Shape(layers, width, width // 128, 2048, 50_257, experts=128, expert_every=2)
    assert num_parameters(shape) / 1e9 == pytest.approx(billions, rel=0.01)


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        ("mixtral-8x7b", 12.9),
        ("mixtral-8x22b", 39.2),
        ("qwen3-30b-a3b", 3.35),
        ("qwen3-235b-a22b", 22.2),
        ("dbrx-132b", 36.5),
        ("deepseek-moe-16b", 2.83),
        ("olmoe-7b", 1.3),
        ("qwen1.5-moe-14b", 2.7),
    ],
)
def test_parameters_that_a_token_of_a_mixture_meets(name, billions):
    assert num_active_parameters(published(name)) / 1e9 == pytest.approx(billions, abs=0.05)


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        ("deepseek-v2-lite", 2.4),
        ("deepseek-v2", 21),
        ("deepseek-v3", 37),
        ("kimi-k2", 32),
        ("gpt-oss-20b", 3.61),
        ("gpt-oss-120b", 5.13),
    ],
)
def test_the_same_of_others_without_the_table_of_tokens(name, billions):
    shape = published(name)
    assert (num_active_parameters(shape) - shape.vocabulary * shape.width) / 1e9 == pytest.approx(billions, rel=0.03)


GLM = {"glm4.5-106b": (106, 12), "glm4.5-355b": (355, 32)}


@pytest.mark.parametrize(("name", "told"), GLM.items())
def test_glms_report_counts_no_tables_of_tokens(name, told):
    """arXiv 2508.06471, table 1, whose 355 include the module for a second token, a block more."""
    shape = published(name)
    if name == "glm4.5-355b":
        shape = replace(shape, layers=shape.layers + 1)
    found = (count(shape, embeddings=False) for count in (num_parameters, num_active_parameters))
    assert tuple(round(size / 1e9) for size in found) == told


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("zai-org/GLM-4.5-Air-Base", "glm4.5-106b"),
        ("Llama-3.1-405B", "llama3-405b"),
        ("DeepSeek V3", "deepseek-v3"),
        ("Qwen2.5-72B", "qwen2.5-72b"),
        ("GPT-3", "gpt3-175b"),
        ("Phi-3-mini", "phi3-mini-3.8b"),
        ("OLMoE-1B-7B", "olmoe-7b"),
        ("OLMo-2-0325-32B", "olmo2-32b"),
        ("Nemotron-4-340B", "nemotron4-340b"),
        ("BLOOM-1b7", "bloom-1.7b"),
        ("T-NLG", "turing-nlg-17b"),
        ("meta-llama/Meta-Llama-3-8B", "llama3-8b"),
        ("meta-llama/Llama-2-70b-chat-hf", "llama2-70b"),
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", "mixtral-8x7b"),
        ("google/gemma-3-27b-it", "gemma3-27b"),
        ("openai-community/gpt2", "gpt2"),
    ],
)
def test_names_as_their_makers_write_them(name, ours):
    assert is_published(name)
    assert published(name) is published(ours)
    assert not is_published("llama-3-7b")


@pytest.mark.parametrize("name", ["gpt2/config.json", "models/of/gpt2", "mistralai/Mistral-7B-v0.3", "-it"])
def test_names_of_something_else(name):
    assert not is_published(name)  # the third Mistral has more words


def test_an_unknown_model_is_told_with_the_nearest():
    with pytest.raises(UnknownNameError, match="unknown published model 'llama3-7b'; did you mean 'llama"):
        published("llama3-7b")
