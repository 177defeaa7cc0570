"""An answer to every puzzle: each can be solved, by what its hints say."""

import re

import numpy as np
import pytest

from simdist.arrays import partition
from simdist.collectives import all_gather, all_reduce, all_to_all, broadcast, reduce_scatter
from simdist.puzzles import puzzle
from simdist.puzzles.puzzle import _PUZZLES

# -- messages -------------------------------------------------------------------------------------------


def shift(x, comm):
    y = np.empty_like(x)
    comm.sendrecv(x, (comm.rank + 1) % comm.size, y, (comm.rank - 1) % comm.size)
    x[:] = y


def tell(x, comm):
    p, r, known = comm.size, comm.rank, 1
    while known < p:
        if r < known and r + known < p:
            comm.send(x, r + known)
        elif known <= r < 2 * known:
            comm.recv(x, r - known)
        known *= 2


def ring(x, comm):
    p, r = comm.size, comm.rank
    after, before = (r + 1) % p, (r - 1) % p
    chunk = partition(len(x), p)
    incoming = np.empty_like(x)
    for k in range(1, p):
        give, take = chunk[(r - k) % p], chunk[(r - k - 1) % p]
        comm.sendrecv(x[give], after, incoming[take], before)
        x[take] += incoming[take]
    for k in range(p - 1):
        give, take = chunk[(r - k) % p], chunk[(r - k - 1) % p]
        comm.sendrecv(x[give], after, x[take], before)


def rows(x, comm):
    after, before = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    y, ready, requests = np.empty_like(x), np.empty_like(x), []
    for i in range(3):
        comm.compute(seconds=1.0)
        ready[i] = x[i]
        requests += [comm.isend(ready[i], after), comm.irecv(y[i], before)]
    for request in requests:
        request.wait()
    return y


# -- collectives ----------------------------------------------------------------------------------------


def gather_ring(chunk, comm):
    p, r = comm.size, comm.rank
    y = np.empty((p, len(chunk)), chunk.dtype)
    y[r] = chunk
    for k in range(p - 1):
        comm.sendrecv(y[(r - k) % p], (r + 1) % p, y[(r - k - 1) % p], (r - 1) % p)
    return y.reshape(-1)


def gather_bruck(chunk, comm):
    p, r, have = comm.size, comm.rank, 1
    y = np.empty((p, len(chunk)), chunk.dtype)
    y[0] = chunk
    while have < p:
        n = min(have, p - have)
        comm.sendrecv(y[:n], (r - have) % p, y[have : have + n], (r + have) % p)
        have += n
    return np.roll(y, r, axis=0).reshape(-1)


def tell_long(x, comm):
    p, r, requests = comm.size, comm.rank, []
    for piece in np.array_split(x, 16):
        if r > 0:
            comm.recv(piece, r - 1)
        if r < p - 1:
            requests.append(comm.isend(piece, r + 1))
    for request in requests:
        request.wait()


def sum_a_part(x, comm):
    p, r = comm.size, comm.rank
    chunk = partition(len(x), p)
    total = x[chunk[r]].copy()
    y = np.empty_like(total)
    for k in range(1, p):
        comm.sendrecv(x[chunk[(r + k) % p]], (r + k) % p, y, (r - k) % p)
        total += y
    return total


def sum_short(x, comm):
    y, k = np.empty_like(x), 1
    while k < comm.size:
        comm.sendrecv(x, comm.rank ^ k, y, comm.rank ^ k)
        x += y
        k *= 2


def sum_over_nodes(x, comm):
    node = comm.split(comm.node)
    chunk = partition(len(x), node.size)[node.rank]
    mine = sum_a_part(x, node)
    theirs = np.empty_like(mine)
    other = (comm.rank + node.size) % comm.size
    comm.sendrecv(mine, other, theirs, other)
    x[:] = gather_ring(mine + theirs, node)
    assert chunk.stop - chunk.start == len(mine)


def transpose(x, comm):
    p, r = comm.size, comm.rank
    b = len(x)
    y = np.empty_like(x)
    for k in range(p):
        dst, src = (r + k) % p, (r - k) % p
        block = np.ascontiguousarray(x[:, dst * b : (dst + 1) * b].T)
        if k:
            incoming = np.empty_like(block)
            comm.sendrecv(block, dst, incoming, src)
            block = incoming
        y[:, src * b : (src + 1) * b] = block
    return y


def deliver(x, comm):
    p, r, k = comm.size, comm.rank, 1
    held = np.roll(x, -r, axis=0)
    while k < p:
        far = [d for d in range(p) if d & k]
        out = held[far]
        incoming = np.empty_like(out)
        comm.sendrecv(out, (r + k) % p, incoming, (r - k) % p)
        held[far] = incoming
        k *= 2
    return held[[(r - i) % p for i in range(p)]]


# -- training and memory --------------------------------------------------------------------------------


def mean_gradient(gradient, examples, comm):
    both = np.append(gradient * examples, examples)
    all_reduce(both, comm)
    return both[:-1] / both[-1]


def clip(shard, limit, comm):
    square = np.array([shard @ shard])
    all_reduce(square, comm)
    return shard * min(1.0, limit / np.sqrt(square[0]))


def train(w, gradient, comm):
    broadcast(w, comm)
    velocity = np.zeros_like(w)
    for step in range(5):
        g = gradient(w, step)
        all_reduce(g, comm)
        velocity = 0.9 * velocity + g
        w -= 0.01 * velocity
    return w


def buckets(seconds, megabytes, alpha, beta):
    ready, best, before = np.cumsum(seconds), [0.0], [0]
    for end in range(1, len(seconds) + 1):
        ends = [max(best[j], ready[end - 1]) + alpha + beta * sum(megabytes[j:end]) for j in range(end)]
        before.append(int(np.argmin(ends)))
        best.append(min(ends))
    found, end = [], len(seconds)
    while end:
        found.insert(0, list(range(before[end], end)))
        end = before[end]
    return found


def train_sharded(w, gradients, comm):
    chunk = partition(len(w), comm.size)[comm.rank]
    velocity = np.zeros(chunk.stop - chunk.start)
    for g in gradients:
        velocity = 0.9 * velocity + reduce_scatter(g, comm, algorithm="ring")
        w = all_gather(w[chunk] - 0.1 * velocity, comm, algorithm="ring")
    return w, velocity


def keep(layers):
    return range(0, layers, int(layers**0.5))


def cut(a, b, p, r):
    columns = partition(a.shape[1], p)[r]
    return a[:, columns], b[columns]


# -- asynchrony, pipelines, sequences -------------------------------------------------------------------


def may_begin(worker, clocks, s):
    return clocks[worker] - min(clocks) <= s


def mixing(neighbours):
    n = len(neighbours)
    w = np.zeros((n, n))
    for i, others in enumerate(neighbours):
        for j in others:
            w[i, j] = 1 / (1 + max(len(others), len(neighbours[j])))
        w[i, i] = 1 - w[i].sum()
    return w


def rows_of(p, m, backward):
    """p - r - 1 forwards on rank r, then a forward and what `backward` says in turn, as long as there are any."""
    for r in range(p):
        early = min(p - r - 1, m)
        row = [f"F{i}" for i in range(early)]
        for i in range(m):
            row += [f"F{i + early}"] if i + early < m else []
            row += backward(i, r)
        yield row


def one_f_one_b(p, m):
    return [" ".join(row) for row in rows_of(p, m, lambda i, r: [f"B{i}"])]


def zb_h1(p, m):
    late = [[f"W{i}" for i in range(max(0, m - r), m)] for r in range(p)]
    rows = rows_of(p, m, lambda i, r: [f"I{i}", f"W{i - r}"] if i >= r else [f"I{i}"])
    return [" ".join(row + rest) for row, rest in zip(rows, late, strict=True)]


def merge(o1, z1, o2, z2):
    z = np.logaddexp(z1, z2)
    return o1 * np.exp(z1 - z)[:, None] + o2 * np.exp(z2 - z)[:, None], z


def share(tokens, p, r):
    piece = tokens // (2 * p)
    return [*range(r * piece, (r + 1) * piece), *range(tokens - (r + 1) * piece, tokens - r * piece)]


def place(chosen, capacity):
    onehot = chosen[:, None] == np.arange(chosen.max() + 1)
    slots = (np.cumsum(onehot, axis=0) - 1)[np.arange(len(chosen)), chosen]
    return np.where(slots < capacity, slots, -1)


def through(x, chosen, expert, capacity, comm):
    slots = np.zeros((comm.size, capacity, x.shape[1]))
    whose = [np.flatnonzero(chosen == j)[:capacity] for j in range(comm.size)]
    for j, tokens in enumerate(whose):
        slots[j, : len(tokens)] = x[tokens]
    rows = all_to_all(slots, comm)
    back = all_to_all(expert(rows.reshape(-1, x.shape[1])).reshape(rows.shape), comm)
    y = np.zeros_like(x)
    for j, tokens in enumerate(whose):
        y[tokens] = back[j, : len(tokens)]
    return y


ANSWERS = [
    *(shift, tell, ring, rows, gather_ring, gather_bruck, tell_long, sum_a_part, ring, sum_short, sum_over_nodes),
    *(transpose, deliver, mean_gradient, clip, train, buckets, train_sharded, keep, cut, may_begin, mixing),
    *(one_f_one_b, zb_h1, merge, share, place, through),
]


def test_there_is_an_answer_to_every_puzzle():
    assert sorted(_PUZZLES) == list(range(1, len(ANSWERS) + 1))


@pytest.mark.parametrize("number", range(1, len(ANSWERS) + 1))
def test_it_can_be_solved(number):
    verdict = puzzle(number).check(ANSWERS[number - 1])
    assert verdict.solved, verdict
    assert verdict
    assert "solved" in repr(verdict)


@pytest.mark.parametrize("number", range(1, len(ANSWERS) + 1))
def test_what_the_task_begins_with_does_not_solve_it(number):
    code = re.search(r"```python\n(.*?)```", puzzle(number).task, re.DOTALL)[1]
    names = {}
    exec(code, names)
    function = next(v for k, v in names.items() if callable(v) and getattr(v, "__module__", None) is None)
    verdict = puzzle(number).check(function)
    assert not verdict.solved
    assert "not yet" in repr(verdict)
    assert "NameError" not in repr(verdict), "it lacks an import"
    wrong = [finding for finding in verdict.findings if not finding.good]
    assert all(finding.found for finding in wrong)
    assert all(finding.expected or finding.why for finding in wrong)


@pytest.mark.parametrize("number", range(1, len(ANSWERS) + 1))
def test_no_task_and_no_hint_gives_the_answer_away_at_once(number):
    given = puzzle(number)
    assert len(given.hints) >= 2
    assert all(hint not in given.task for hint in given.hints)
    assert given.title in repr(given)
    assert f"puzzle({number})" in given._repr_markdown_()
