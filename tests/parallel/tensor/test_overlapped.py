"""What overlaps: the time of products and messages in turn, against max(product, message) a step."""

import numpy as np
import pytest

import simdist as sd
from simdist.arrays import phantom
from simdist.cluster import Cluster, Device, Link
from simdist.errors import CollectiveMismatch
from simdist.nn import functional as f
from simdist.parallel.tensor import OVERLAPPED, Overlapped, Sharded

B, S, H, K = 1, 96, 64, 128  # texts, tokens, features outside, features of all ranks inside
FLOPS_PER_S = 1e9


def seconds(t, bytes_per_s, region, way):
    """How long tokens take to enter, or to leave, through a product."""
    link = Link(0.0, bytes_per_s)
    cluster = Cluster("made up", Device("made up", FLOPS_PER_S, np.inf, np.inf), link, link, devices_per_node=t)

    def program(comm):
        there = region(comm, "ring")
        features = (H, K // t) if way == "enter" else (K // t, H)
        x, w = phantom((B, S // t if way == "enter" else S, features[0])), phantom(features)
        move = there.enter_through if way == "enter" else there.leave_through
        move(x, features[1], lambda x, out=None: f.linear(x, w, out=out))

    return sd.run(program, t, cluster=cluster).elapsed_s


@pytest.mark.parametrize("way", ["enter", "leave"])
@pytest.mark.parametrize("t", [1, 2, 4, 8])
@pytest.mark.parametrize("ratio", [0.25, 1.0, 3.0])
def test_a_step_is_as_long_as_the_longer_of_both(t, ratio, way):
    """t-1 steps of both, and one of a product alone; where tokens leave, also t-1 sums."""
    product_s = 2 * B * S // t * H * (K // t) / FLOPS_PER_S
    message_s = ratio * product_s
    bytes_per_s = B * S // t * H * 4 / message_s
    sums_s = (t - 1) * B * S // t * H / FLOPS_PER_S if way == "leave" else 0
    steps_s = (t - 1) * max(product_s, message_s) + product_s + sums_s
    assert seconds(t, bytes_per_s, Overlapped, way) == pytest.approx(steps_s, rel=1e-9)
    in_turn_s = (t - 1) * message_s + t * product_s + sums_s
    assert seconds(t, bytes_per_s, Sharded, way) == pytest.approx(in_turn_s, rel=1e-9)


def test_runs_that_differ(spmd):
    def program(comm):
        x = np.ones((2, 3 + comm.rank // 2, 4))
        Overlapped(comm).enter_through(x, 4, lambda x, out: np.copyto(out, x))

    with pytest.raises(CollectiveMismatch, match=OVERLAPPED[0]):
        spmd(program, 4)
