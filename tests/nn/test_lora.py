"""What LoRA trains and what GaLore keeps, by their papers and as programs print it."""

import pytest

from simdist.errors import ArgumentError, UnknownNameError
from simdist.nn import Shape, published
from simdist.nn.formulas import galore_state, lora_parameters, num_parameters

ALL = ("query", "key", "value", "attended", "hidden", "thought")


@pytest.mark.parametrize(("rank", "millions"), [(1, 4.7), (8, 37.7)])
def test_gpt_3_in_the_paper(rank, millions):
    """arXiv 2106.09685, table 4; with 1 to 8 maps for the same 18 million, table 5."""
    gpt3 = published("gpt3-175b")
    assert lora_parameters(gpt3, rank) / 1e6 == pytest.approx(millions, abs=0.05)
    for r, maps in ((8, ALL[:1]), (4, ("query", "key")), (2, ALL[:4])):
        assert lora_parameters(gpt3, r, maps) == lora_parameters(gpt3, 4) == 18_874_368


def test_llama_as_programs_print_it():
    llama = published("llama-7b")
    assert lora_parameters(llama, 8) == 4_194_304
    assert lora_parameters(llama, 64, ALL) == 159_907_840  # QLoRA


@pytest.mark.parametrize("names", [("q", "v"), ("q_proj", "v_proj"), ("W_q", "W_v")])
def test_maps_by_the_letters_of_papers_and_programs(names):
    shape = published("llama3-8b")
    assert lora_parameters(shape, 16, names) == lora_parameters(shape, 16) == 6_815_744  # as PEFT prints it


def test_shared_keys_and_experts():
    shape = Shape(
        2, 16, 4, 8, kv_heads=2, ffn_width=20, experts=3, shared_experts=2, dense_layers=1, dense_ffn_width=30
    )
    assert lora_parameters(shape, 5, ("key", "value")) == 5 * 2 * 2 * (16 + 8)
    inside = (16 + 30) + 3 * (16 + 20) + (16 + 40)
    assert lora_parameters(shape, 5, ("hidden",)) == lora_parameters(shape, 5, ("thought",)) == 5 * inside
    square = Shape(3, 8, 2, 8, 10, ffn_width=8)  # whose maps have h² weights: LoRA with r = h/2 has as many
    assert lora_parameters(square, 4, ALL) == num_parameters(square) - 3 * 10 * 8 - (10 + 8 + 2) * 8


def test_maps_that_there_are_not():
    with pytest.raises(UnknownNameError, match="'gate_proj'.*attended"):
        lora_parameters(published("gpt2"), 8, ("gate_proj",))
    with pytest.raises(ArgumentError, match="rank is 0; needs at least 1"):
        lora_parameters(published("gpt2"), 0)
    with pytest.raises(ArgumentError, match="kv_latent_width is 512; needs None"):
        lora_parameters(published("deepseek-v3"), 8)


def test_what_galore_saves():
    """arXiv 2403.03507, of LLaMA 7B with r = 1024: 18 GB of weights in 16 bits and of state in 8, table 3, and state
    82.5% smaller than Adam's in 16 bits; by up to 65.5% with bits alike.
    """
    llama = published("llama-7b")
    weights, state = num_parameters(llama), galore_state(llama, 1024)
    assert round((2 * weights + state) / 1e9) == 18
    assert 1 - state / (2 * 2 * weights) == pytest.approx(0.825, abs=0.001)
    assert 1 - state / (2 * weights) == pytest.approx(0.655, abs=0.005)


def test_what_galore_keeps_is_of_each_map():
    """m r + 2 r n of six maps, and both moments of all that is no map."""
    shape = Shape(3, 16, 4, 8, 10, kv_heads=2, ffn_width=20)
    maps = ((16, 16), (16, 8), (16, 8), (16, 16), (16, 20), (20, 16))
    projected = sum(5 * (min(m, n) + 2 * max(m, n)) for m, n in maps)
    others = num_parameters(shape) - 3 * sum(m * n for m, n in maps)
    assert galore_state(shape, 5) == 3 * projected + 2 * others
    for rank in (0, 9):
        with pytest.raises(ArgumentError, match=f"rank is {rank}; needs from 1 to 8"):
            galore_state(shape, rank)
