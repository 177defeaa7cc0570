"""Pairing sends with receives, against orders known by construction."""

import random

import numpy as np

import simdist as sd
from simdist.trace import Span
from simdist.trace.match import match


def send(src, dst, start, end=None, tag=0, context="world", num_bytes=0):
    return Span(src, "main", "send", start, start if end is None else end, num_bytes, dst, tag, context)


def recv(src, dst, start, end, tag=0, context="world", num_bytes=0):
    return Span(dst, "main", "recv", start, end, num_bytes, src, tag, context)


def test_the_kth_send_meets_the_kth_receive():
    spans = [send(0, 1, 0.0), send(0, 1, 1.0), recv(0, 1, 0.0, 2.0), recv(0, 1, 2.0, 3.0)]
    assert match(spans) == [(0, 2), (1, 3)]


def test_tags_contexts_and_partners_are_channels_of_their_own():
    spans = [
        send(0, 1, 0.0, tag=1),
        send(0, 1, 1.0, tag=2),
        send(0, 1, 2.0, tag=2, context="other"),
        send(2, 1, 3.0, tag=2),
        recv(2, 1, 0.0, 9.0, tag=2),
        recv(0, 1, 1.0, 9.0, tag=2, context="other"),
        recv(0, 1, 2.0, 9.0, tag=2),
        recv(0, 1, 3.0, 9.0, tag=1),
    ]
    assert match(spans) == [(0, 7), (1, 6), (2, 5), (3, 4)]


def test_of_messages_begun_at_one_moment_the_first_to_end_comes_first():
    # Both posted at 0; the port carries them one after the other. A record may list them in any order.
    spans = [send(0, 1, 0.0, 2.0, num_bytes=7), send(0, 1, 0.0, 1.0, num_bytes=3)]
    spans += [recv(0, 1, 0.0, 2.0, num_bytes=3), recv(0, 1, 0.0, 3.0, num_bytes=7)]
    assert match(spans) == [(0, 3), (1, 2)]


def test_of_messages_begun_at_one_moment_the_bytes_are_the_same():
    """Not more: the longer one ends first."""
    spans = [send(0, 1, 0.0, 1.0, num_bytes=7), send(0, 1, 0.0, 2.0, num_bytes=3)]
    spans += [recv(0, 1, 0.0, 2.0, num_bytes=3), recv(0, 1, 0.0, 3.0, num_bytes=7)]
    assert match(spans) == [(0, 3), (1, 2)]


def test_of_messages_begun_one_after_the_other_bytes_tell_nothing():
    spans = [send(0, 1, 0.0, num_bytes=3), send(0, 1, 1.0, num_bytes=7)]
    spans += [recv(0, 1, 0.0, 2.0, num_bytes=7), recv(0, 1, 1.0, 3.0, num_bytes=3)]
    assert match(spans) == [(0, 2), (1, 3)]


def test_a_large_message_that_leaves_after_a_small_one_is_still_the_first():
    """Both sent at 0; the large one waits for its receive, and the small one, which comes second, does not."""

    def program(comm):
        large, small = np.zeros(1 << 20, np.uint8), np.zeros(10, np.uint8)
        if comm.rank == 0:
            for request in [comm.isend(x, 1) for x in (large, small, small)]:
                request.wait()
        else:
            comm.compute(seconds=1.0)
            for x in (large, small, small):
                comm.recv(x, 0)

    pairs = sd.run(program, 2).trace.messages()
    assert [(s.bytes, r.bytes) for s, r in pairs] == [(1 << 20, 1 << 20), (10, 10), (10, 10)]


def test_a_message_without_its_other_half_is_left_out():
    assert match([send(0, 1, 0.0), send(0, 1, 1.0), recv(0, 1, 0.0, 1.0), recv(3, 1, 0.0, 1.0)]) == [(0, 2)]


def test_any_order_of_the_record_gives_the_same_pairs():
    # The number of bytes names the message.
    spans = []
    for k in range(200):
        src, dst, tag = k % 3, 3 + k % 2, k % 5
        spans.append(send(src, dst, float(k), k + 0.5, tag, num_bytes=k))
        spans.append(recv(src, dst, float(k), k + 5.0, tag, num_bytes=k))
    random.Random(1).shuffle(spans)
    pairs = match(spans)
    assert len(pairs) == 200
    assert all(spans[i].name == "send" and spans[i].bytes == spans[j].bytes for i, j in pairs)
    assert [i for i, _ in pairs] == sorted(i for i, _ in pairs)
