"""Answers that are right on much of what is tried, and wrong all the same: each is found out, and told why."""

import numpy as np
import pytest

from simdist.arrays import partition
from simdist.collectives import all_reduce
from simdist.puzzles import puzzle


def test_pieces_in_each_others_places_are_seen():
    def tell(x, comm):
        r, requests, pieces = comm.rank, [], np.array_split(x, 16)
        for i in range(16):
            piece = pieces[i if r else 15 - i]
            if r > 0:
                comm.recv(piece, r - 1)
            if r < comm.size - 1:
                requests.append(comm.isend(piece, r + 1))
        for request in requests:
            request.wait()

    assert "what rank 1 of 8 ends with" in repr(puzzle(7).check(tell))


def ring(x, comm, turned=0, chunks=partition):
    """A ring all-reduce whose result is turned by so many items."""
    p, r = comm.size, comm.rank
    chunk, y = chunks(len(x), p), np.empty_like(x)
    for k in range(1, p):
        give, take = chunk[(r - k) % p], chunk[(r - k - 1) % p]
        comm.sendrecv(x[give], (r + 1) % p, y[take], (r - 1) % p)
        x[take] += y[take]
    for k in range(p - 1):
        give, take = chunk[(r - k) % p], chunk[(r - k - 1) % p]
        comm.sendrecv(x[give], (r + 1) % p, x[take], (r - 1) % p)
    x[:] = np.roll(x, turned)


def equal(n, p):
    return [slice(r * (n // p), (r + 1) * (n // p)) for r in range(p)]


def test_chunks_of_a_sum_in_each_others_places_are_seen():
    assert puzzle(9).check(ring)
    said = repr(puzzle(9).check(lambda x, comm: ring(x, comm, turned=len(x) // comm.size)))
    assert "of 23 items" in said
    assert "in another's place" in said


def test_quarters_in_each_others_places_are_seen():
    def sum_all(x, comm):
        node, other = comm.split(comm.node), (comm.rank + 4) % 8
        mine = x.copy()
        ring(mine, node)
        part, y = partition(len(x), 4)[node.rank], np.empty(len(x) // 4, x.dtype)
        comm.sendrecv(mine[part], other, y, other)
        all_parts = np.empty((4, len(y)), x.dtype)
        all_parts[node.rank] = mine[part] + y
        for k in range(3):
            give, take = (node.rank - k) % 4, (node.rank - k - 1) % 4
            node.sendrecv(all_parts[give], (node.rank + 1) % 4, all_parts[take], (node.rank - 1) % 4)
        x[:] = np.roll(all_parts, node.rank, axis=0).reshape(-1)

    assert "in another's place" in repr(puzzle(11).check(sum_all))


def test_a_mean_is_no_sum():
    def mean(x, comm):
        ring(x, comm)
        x //= comm.size

    assert "the sum divided by 2" in repr(puzzle(9).check(mean))


def test_chunks_that_leave_out_the_rest_are_seen():
    assert "[43 22] in items 21 to 22" in repr(puzzle(9).check(lambda x, comm: ring(x, comm, chunks=equal)))

    def sum_a_part(x, comm):
        all_reduce(x, comm, algorithm="ring")
        return x[equal(len(x), comm.size)[comm.rank]]

    assert "of 23 items: an array of shape (11,)" in repr(puzzle(8).check(sum_a_part))

    def cut(a, b, p, r):
        columns = equal(a.shape[1], p)[r]
        return a[:, columns], b[columns]

    (wrong,) = (finding for finding in puzzle(20).check(cut).findings if not finding.good)
    assert wrong.what == "the sum over all parts, p = 5"
    assert "is each of the 24 columns of A, and its row of B, on one rank?" in wrong.why


def test_numbers_of_another_kind_are_not_the_chunks():
    def gather(chunk, comm):
        p, r = comm.size, comm.rank
        y = np.zeros((p, len(chunk)))
        y[r] = chunk
        for k in range(p - 1):
            comm.sendrecv(y[(r - k) % p], (r + 1) % p, y[(r - k - 1) % p], (r - 1) % p)
        return y.reshape(-1)

    assert "an array of float64\n         expected: int64" in repr(puzzle(5).check(gather))


def test_whole_arrays_round_a_ring_are_too_many_bytes():
    def whole(x, comm):
        p, r = comm.size, comm.rank
        passing, y = x.copy(), np.empty_like(x)
        for _ in range(p - 1):
            comm.sendrecv(passing, (r + 1) % p, y, (r - 1) % p)
            x += y
            passing[:] = y

    wrong = [finding.what for finding in puzzle(3).check(whole).findings if not finding.good]
    assert wrong == ["bytes that a rank sends, on 3 ranks"]


def test_whole_arrays_where_a_chunk_would_do_are_too_many_bytes():
    def sum_a_part(x, comm):
        p, r = comm.size, comm.rank
        y, total = np.empty_like(x), x.copy()
        for k in range(1, p):
            comm.sendrecv(x, (r + k) % p, y, (r - k) % p)
            total += y
        return total[partition(len(x), p)[r]]

    assert "needs only its own chunk" in repr(puzzle(8).check(sum_a_part))


def test_the_name_of_another_array_is_no_answer():
    def shift(x, comm):
        y = np.empty_like(x)
        comm.sendrecv(x, (comm.rank + 1) % comm.size, y, (comm.rank - 1) % comm.size)
        x = y

    assert "x is as it was, though a message arrived: x[:] = y changes" in repr(puzzle(1).check(shift))


def test_an_array_that_is_overwritten_while_it_is_sent_is_told():
    def shift(x, comm):
        request = comm.isend(x, (comm.rank + 1) % comm.size)
        comm.recv(x, (comm.rank - 1) % comm.size)
        request.wait()

    assert "did the sender overwrite the array" in repr(puzzle(1).check(shift))


def test_a_rank_that_no_message_reaches_is_told():
    def tell(x, comm):
        p, r, known = comm.size, comm.rank, 1
        while 2 * known < p:  # one round too few
            if r < known and r + known < p:
                comm.send(x, r + known)
            elif known <= r < 2 * known:
                comm.recv(x, r - known)
            known *= 2

    assert "x is as it was: no message arrived here" in repr(puzzle(2).check(tell))


def test_weight_gradients_that_all_come_last_are_told_to_come_earlier():
    def rows(p, m):
        first = [" ".join(f"F{i} I{i}" for i in range(m))]  # of the last rank; the others run ahead
        for r in range(p - 2, -1, -1):
            ahead = min(p - r - 1, m)
            row = [f"F{i}" for i in range(ahead)]
            for i in range(m):
                row += [f"F{i + ahead}"] * (i + ahead < m) + [f"I{i}"]
            first.insert(0, " ".join(row))
        return [f"{row} {' '.join(f'W{i}' for i in range(m))}" for row in first]

    said = repr(puzzle(24).check(rows))
    assert "memory of rank 0, 2 stages" in said
    assert "which W can come earlier?" in said
    assert "which W could run where a rank waits?" in said


def test_work_that_differs_is_shown_by_rank():
    said = repr(puzzle(26).check(lambda tokens, p, r: range(r, tokens, p)))
    assert "the ranks' work, i + 1 for the token at i: 64, 72" in said  # of 16 tokens: 1 + 3 + … + 15, 2 + … + 16


def test_two_sums_fit_into_one_array():
    def mean_gradient(gradient, examples, comm):
        total, number = gradient * examples, np.array([examples])
        all_reduce(total, comm)
        all_reduce(number, comm)
        return total / number

    assert "one array can carry both sums" in repr(puzzle(14).check(mean_gradient))


@pytest.mark.parametrize(("shape", "said"), [(list, "np.concatenate joins"), (np.array, "as many items: reshape it")])
def test_chunks_that_are_not_joined_are_told_how_to_be(shape, said):
    def gather_all(chunk, comm):
        p, r = comm.size, comm.rank
        y = np.empty((p, len(chunk)), chunk.dtype)
        y[r] = chunk
        for k in range(p - 1):
            comm.sendrecv(y[(r - k) % p], (r + 1) % p, y[(r - k - 1) % p], (r - 1) % p)
        return shape(y)

    assert said in repr(puzzle(5).check(gather_all))


def test_a_request_that_nobody_waits_for_is_told():
    def shift(x, comm):
        comm.isend(x.copy(), (comm.rank + 1) % comm.size)
        comm.recv(x, (comm.rank - 1) % comm.size)

    said = repr(puzzle(1).check(shift))
    assert "not yet" in said
    assert "rank 0 never waited for its isend to rank 1" in said

    def rows(x, comm):
        y, requests = np.empty_like(x), []
        for i in range(3):
            comm.compute(seconds=1.0)
            requests.append(comm.isend(x[i], (comm.rank + 1) % comm.size))
            comm.irecv(y[i], (comm.rank - 1) % comm.size)
        for request in requests:
            request.wait()
        return y

    assert "rank 0 never waited for its irecv from rank 1" in repr(puzzle(4).check(rows))


def test_every_worker_is_asked_for():
    said = repr(puzzle(21).check(lambda worker, clocks, s: clocks[0] - min(clocks) <= s))
    assert "worker 2 of clocks [0, 0, 1], s = 0, may begin: True" in said


def test_there_may_be_fewer_micro_batches_than_stages():
    def rows(p, m):
        found = []
        for r in range(p):
            early = p - r - 1
            turns = [f"F{i + early} B{i}" for i in range(m - early)]
            ends = [f"B{i}" for i in range(m - early, m)]
            found.append(" ".join([*(f"F{i}" for i in range(early)), *turns, *ends]))
        return found

    wrong = [finding.what for finding in puzzle(23).check(rows).findings if not finding.good]
    assert wrong == ["the schedule for 4 stages and 2 micro-batches"]


def test_a_gradient_that_is_short_enough_is_left():
    def clip(shard, limit, comm):
        square = np.array([shard @ shard])
        all_reduce(square, comm)
        return shard * limit / np.sqrt(square[0])

    assert "leave it" in repr(puzzle(15).check(clip))


def test_shards_that_are_all_scaled_alike_may_be_scaled_wrongly():
    def clip(shard, limit, comm):
        square = np.array([shard @ shard])
        all_reduce(square, comm)
        return shard * min(1, limit / square[0])

    assert "scale each shard by" in repr(puzzle(15).check(clip))


def test_weights_that_drift_apart_are_told_first():
    def train(w, gradient, comm):
        velocity = np.zeros_like(w)
        for step in range(5):
            g = gradient(w, step)
            all_reduce(g, comm)
            velocity = 0.9 * velocity + g
            w -= 0.01 * velocity
        return w

    assert "the weights of rank 1 of 2, beside rank 0's" in repr(puzzle(16).check(train))


def test_a_difference_of_scores_overflows_too():
    def merge(o1, z1, o2, z2):
        share = 1 / (1 + np.exp(z2 - z1))
        return share[:, None] * o1 + (1 - share)[:, None] * o2, z1 + np.log1p(np.exp(z2 - z1))

    wrong = [finding.what for finding in puzzle(25).check(merge).findings if not finding.good]
    assert wrong == ["z of three blocks, blocks whose scores are 1000 apart"]


def own_chunk(velocity, comm):
    return velocity[partition(len(velocity), comm.size)[comm.rank]]


@pytest.mark.parametrize(
    ("returned", "missed"),
    [
        (lambda velocity, comm: velocity[:0], [f"numbers of optimizer state on all {p}" for p in (1, 2, 3, 4)]),
        (own_chunk, []),
    ],
    ids=["nothing", "a part"],
)
def test_a_velocity_is_kept_whole_whatever_is_returned_of_it(returned, missed):
    def train(w, gradients, comm):
        velocity = np.zeros_like(w)
        for g in gradients:
            all_reduce(g, comm, algorithm="ring")
            velocity = 0.9 * velocity + g
            w -= 0.1 * velocity
        return w, returned(velocity, comm)

    wrong = [finding.what for finding in puzzle(18).check(train).findings if not finding.good]
    assert wrong == [*missed, "gradients summed by"]


def test_workers_that_leave_themselves_no_weight_are_told():
    def mixing(neighbours):
        w = np.zeros((len(neighbours),) * 2)
        for i, others in enumerate(neighbours):
            w[i, others] = [1 / max(len(others), len(neighbours[j])) for j in others]
        return w + np.diag(1 - w.sum(axis=1))  # 0 on a regular graph, such as a ring

    (wrong,) = (finding for finding in puzzle(22).check(mixing).findings if not finding.good)
    assert wrong.what.startswith("a ring of 8")
    assert "leave some to itself" in wrong.why


@pytest.mark.parametrize(
    ("first", "length", "said"),
    [(0, 9, "token 8 is there 2 times"), (-1, 9, "token -1 is there 1 time"), (0, 7, "token 7 is there 0 times")],
)
def test_a_token_that_no_rank_has_or_several_have_is_named(first, length, said):
    def share(tokens, p, r):
        return range(r * 8 + (r == 0) * first, r * 8 + length + min(first, 0))

    assert said in repr(puzzle(26).check(share))


def test_an_array_of_several_lines_is_indented():
    said = repr(puzzle(22).check(lambda neighbours: np.ones((len(neighbours),) * 2)))
    assert all(line.startswith("  ") for line in said.splitlines()[1:])
