"""The figures of ZeRO-Infinity's paper, and what crosses the link here."""

import numpy as np
import pytest
from zero_training import adamw

import simdist as sd
from simdist.arrays import phantom
from simdist.errors import ArgumentError, UnknownNameError
from simdist.nn import Shape, gpt
from simdist.parallel.zero import Offload, ZeRO
from simdist.parallel.zero.infinity import bandwidth, efficiency, infinity_bytes, intensity


@pytest.mark.parametrize(
    ("layers", "thousands", "heads", "states", "activations", "checkpoints", "working_states", "working_activations"),
    [  # figure 2a: TiB for 32 sequences of 1024 tokens, GiB for 4 of them
        (100, 20, 160, 9.16, 3.91, 0.12, 6.25, 2.50),
        (195, 64, 512, 182.81, 24.38, 0.76, 64.00, 8.00),
        (315, 160, 1024, 1845.70, 88.59, 3.08, 400.00, 18.00),
    ],
)
def test_the_papers_table(
    layers, thousands, heads, states, activations, checkpoints, working_states, working_activations
):
    node, gpu = (infinity_bytes(layers, thousands * 1024, heads, 1024, sequences) for sequences in (32, 4))
    assert (round(node.states / 2**40, 2), round(node.checkpoints / 2**40, 2)) == (states, checkpoints)
    assert round(node.activations / 2**40, 2) == activations
    assert (gpu.working_states / 2**30, gpu.working_activations / 2**30) == (working_states, working_activations)


def test_fewer_checkpoints_take_more_to_make_again():
    one, three = infinity_bytes(6, 8, 2, 4, 1), infinity_bytes(6, 8, 2, 4, 1, checkpoint_every=3)
    assert three.checkpoints == one.checkpoints / 3
    assert three.working_activations == 3 * one.working_activations


@pytest.mark.parametrize(
    ("what", "sequences", "thousands", "gb_per_s", "least"),
    [
        ("parameters", 1, 8, 70, 0.5),
        ("optimizer", 2, 8, 1500, 0.9),
        ("checkpoints", 1, 2, 2, 0.5),
        ("checkpoints", 1, 8, 1, 0.5),
    ],
)
def test_the_bandwidths_that_the_paper_asks_for(what, sequences, thousands, gb_per_s, least):
    """Section 4.2, of a V100 that does 70 teraflops: for so much of it, so many GB/s."""
    moved = intensity(what, context=1024, sequences=sequences, width=thousands * 1024)
    assert least < efficiency(moved, gb_per_s * 1e9, 70e12) < 1
    assert bandwidth(moved, least, 70e12) < gb_per_s * 1e9
    assert bandwidth(moved, efficiency(moved, gb_per_s * 1e9, 70e12), 70e12) == pytest.approx(gb_per_s * 1e9)


def test_the_bytes_of_the_intensity_are_those_that_are_seen_to_move():
    """In a step that computes nothing again weights come twice, and not three times, and gradients go once."""
    shape = Shape(layers=2, width=32, heads=2, context=8)

    def program(comm):
        offload = Offload(("parameters", "gradients", "optimizer"))
        method = ZeRO(gpt(shape), comm, adamw("bf16"), 1, 3, offload=offload, memory=phantom)
        method.backward(phantom((1, 9), np.uint8), 1.0)
        method.step(0.001)
        return method.model.parameters.size

    run = sd.run(program, 1)
    moved = sum(span.bytes for span in run.trace.spans if span.name.startswith("offload"))
    flops_a_byte = intensity("parameters", context=8, sequences=1, width=32)
    assert moved == 6 * run.results[0] == 8 * 8 * run.results[0] / flops_a_byte - 2 * run.results[0]


def test_what_cannot_be():
    with pytest.raises(UnknownNameError, match="'gradient'.*parameters"):
        intensity("gradient", context=1, sequences=1, width=1)
    with pytest.raises(ArgumentError, match="checkpoint_every is 0"):
        infinity_bytes(1, 1, 1, 1, 1, checkpoint_every=0)
    for moved, share in ((1, 1), (1, -0.1), (0, 0.5), (-1, 0.5)):
        with pytest.raises(ArgumentError, match=rf"efficiency is {share}; needs|intensity is {moved}; needs"):
            bandwidth(moved, share, 1)
    assert bandwidth(0.5, 0.75, 10) == 60, "less than an operation for a byte is possible"
