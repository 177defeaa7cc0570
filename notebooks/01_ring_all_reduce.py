# %% [markdown]
# # 1. Ring all-reduce, step by step
#
# Several workers train one model together. Each computes a gradient from its own share of the data, and before the next
# step every worker needs the **sum** of all gradients. What is the least that each of them has to send?
#
# You need Python and NumPy, but no MPI, GPU or network: the workers are *virtual ranks* inside this process. MPI is a
# library through which processes exchange messages, on one machine or on many; if it is installed, the same code runs
# on four real processes near the end.

# %%
import ipywidgets
import numpy as np
from IPython.display import display

import simdist as sd
from simdist.arrays import partition
from simdist.cluster import Cluster, Device, Link
from simdist.collectives import all_reduce, cost, formula
from simdist.collectives.watch import watched
from simdist.plots import collective_steps, style, timeline
from simdist.puzzles import puzzle

# %% [markdown]
# ## A rank is a function of its communicator
#
# A program for several workers is an ordinary function. It runs once per *rank*, the usual name for a worker. Its
# argument, the *communicator*, gives the number of this rank (`comm.rank`) and the number of ranks (`comm.size`), and
# has methods that exchange messages with the others (`comm.send`, `comm.recv`).
#
# Below, rank $r$ holds an array of eight numbers, all equal to $10^r$. *All-reduce* replaces the array on every rank by
# the sum of all ranks' arrays.


# %%
def program(comm):
    x = np.full(8, 10**comm.rank, dtype=np.int64)
    all_reduce(x, comm, algorithm="ring")
    return x


run = sd.run(program, ranks=4)
for rank, x in enumerate(run.results):
    print(f"rank {rank}: {x}")

# %% [markdown]
# Why powers of ten? Counted from the right and from 0, digit $r$ of the result says how often the numbers of rank $r$
# were added. `1111` means that every rank was added exactly once. `1021` would mean that rank 1 was added twice and
# rank 2 never.
#
# ## The obvious way: every rank sends to one
#
# Rank 0 receives all arrays, adds them up and sends the sum back to every other rank. The cell runs this on a cluster
# whose links take 1 µs to start a message (papers call this time α) and then carry 10 GB/s (1/β, where β is the time
# per byte):


# %%
def through_one(x, comm):
    if comm.rank == 0:
        y = np.empty_like(x)
        for other in range(1, comm.size):
            comm.recv(y, src=other)
            x += y
        for other in range(1, comm.size):
            comm.send(x, dst=other)
    else:
        comm.send(x, dst=0)
        comm.recv(x, src=0)


ITEMS = 1_000_000
ALPHA, BETA = 1e-6, 1 / 10e9
wire = Link(latency_s=ALPHA, bytes_per_s=1 / BETA)
plain = Cluster("plain", Device("fast", 1e18, 1e18, 1e12), inside=wire, between=wire, devices_per_node=1024)


def timed(way, ranks):
    """Run `way` on this many ranks, and check that all end with the sum."""

    def program(comm):
        x = np.full(ITEMS, 10**comm.rank, dtype=np.int64)
        way(x, comm)
        return np.array_equal(x, np.full(ITEMS, int("1" * comm.size)))

    run = sd.run(program, ranks, cluster=plain)
    assert all(run.results)
    return run


star = timed(through_one, 4)
timeline(star.trace, arrows=True)

# %% [markdown]
# Time runs to the right. A bar is a call of send or receive; a line is a message, and its dot the arrival. Every
# message begins or ends at rank 0, which handles one at a time, so the others mostly wait for it. With more ranks the
# queue grows:

# %%
array_bytes = ITEMS * 8
print(f"the array has {array_bytes / 1e6:g} MB")
print("ranks   rank 0 sends        took   relative to bytes / bandwidth")
for p in (2, 4, 8, 16):
    run = timed(through_one, p)
    sent = run.trace.statistics()[0].sent.num_bytes
    assert sent == (p - 1) * array_bytes
    print(f"{p:5} {sent / 1e6:11g} MB {run.elapsed_s * 1e3:8.2f} ms {run.elapsed_s / (array_bytes * BETA):12.1f} times")

# %% [markdown]
# On $p$ ranks, rank 0 receives $p-1$ arrays and then sends $p-1$. Only one message is in flight at a time, while all
# other links are idle.
#
# ## The ring
#
# Two ideas fix this. *Cut the array into p chunks*, so that different ranks can work on different chunks at the same
# time. *Arrange the ranks in a ring*, where each one always sends to the next and receives from the previous, so that
# all links are busy all the time.
#
# Go through the steps with the slider. Each row is a rank and each column a chunk; a cell shows whose contributions the
# chunk contains on that rank.

# %%
ring_record = watched("all_reduce", "ring", ranks=4)


def step(step):
    display(collective_steps(ring_record, steps=[step], width=2.6))


ipywidgets.interactive(step, step=(0, 6))

# %% [markdown]
# All steps side by side:

# %%
collective_steps(ring_record)

# %% [markdown]
# Follow one column, c0, from the start:
#
# * **Steps 1 to 3, *reduce-scatter*.** Rank 1 sends its chunk 0 to rank 2, which adds its own and passes the sum on,
#   and so does rank 3. When rank 0 has added its own, chunk 0 is complete. The other chunks travel in the same way,
#   each starting one rank further on, so every rank sends one chunk in every step. After $p-1$ steps each rank has one
#   complete chunk.
# * **Steps 4 to 6, *all-gather*.** The complete chunks go round the ring once more. Now nothing is added: each rank
#   stores the chunk that arrives and passes it on. After another $p-1$ steps every rank has every chunk.
#
# ## Write it
#
# The code follows these steps. `sendrecv` sends and receives at the same time; `partition` returns the slices that cut
# n items into p chunks, whose lengths differ by at most one.


# %%
def ring(x, comm):
    p, r = comm.size, comm.rank
    after, before = (r + 1) % p, (r - 1) % p
    chunk = partition(len(x), p)
    incoming = np.empty_like(x)

    for k in range(1, p):  # reduce-scatter
        give, take = chunk[(r - k) % p], chunk[(r - k - 1) % p]
        comm.sendrecv(x[give], after, incoming[take], before)
        x[take] += incoming[take]

    for k in range(p - 1):  # all-gather
        give, take = chunk[(r - k) % p], chunk[(r - k - 1) % p]
        comm.sendrecv(x[give], after, x[take], before)


around = timed(ring, 4)
timeline(around.trace, arrows=True)

# %% [markdown]
# Compare the time axis with that of the first timeline: the ring is much faster, because every rank sends and receives
# from beginning to end.
#
# You can draw the steps of any such function. Here are those of `ring` on three ranks:

# %%
collective_steps(watched("all_reduce", ring, ranks=3))

# %% [markdown]
# ## What it costs
#
# Let the array have $n$ bytes. A rank sends a chunk of $n/p$ bytes in each of $2(p-1)$ steps, so in all it sends
#
# $$ 2\,\frac{p-1}{p}\,n \quad\text{bytes in}\quad 2(p-1)\,\alpha + 2\,\frac{p-1}{p}\,n\,\beta \quad\text{seconds.} $$
#
# The bytes grow with $p$, but stay below twice the array. (The formula leaves out the additions, which take no time on
# this cluster.) The table compares three figures: **measured** in the trace of a run, **counted** in advance by `cost`,
# and by the paper's **formula**.

# %%
print("ranks    bytes sent by a rank / n               time of the ring, ms       time through one")
print("       measured  counted  formula         measured          formula")
for p in (2, 4, 8, 16):
    run = timed(ring, p)
    sent = max(rank.sent.num_bytes for rank in run.trace.statistics())
    counted = max(cost("all_reduce", "ring", ranks=p, num_bytes=array_bytes, rank=r).sent_bytes for r in range(p))
    paper = formula("all_reduce", "ring", ranks=p, num_bytes=array_bytes)
    seconds = paper.latencies * ALPHA + paper.bytes * BETA
    assert sent == counted and abs(run.elapsed_s / seconds - 1) < 1e-3
    print(
        f"{p:5} {sent / array_bytes:10.3f} {counted / array_bytes:8.3f} {paper.bytes / array_bytes:8.3f}"
        f" {run.elapsed_s * 1e3:16.3f} {seconds * 1e3:16.3f} {timed(through_one, p).elapsed_s * 1e3:18.3f}"
    )

# %% [markdown]
# No algorithm can do better: in any all-reduce, the busiest rank sends at least this many bytes (Patarasuk and Yuan
# 2009). But the ring pays α for each of its many steps. The picture shows what share of the time is left for the bytes.
# The more ranks, the longer an array has to be for the bytes to dominate:

# %%
sizes = [2**k for k in range(3, 26)]
with style.styled():
    fig = style.figure(style.PAGE, 2.4)
    ax = fig.subplots()
    for i, p in enumerate((4, 16, 64)):
        paper = [formula("all_reduce", "ring", ranks=p, num_bytes=n) for n in sizes]
        share = [f.bytes * BETA / (f.latencies * ALPHA + f.bytes * BETA) for f in paper]
        ax.plot(sizes, share, label=f"{p} ranks", markevery=3, **style.series(i))
        half = p * ALPHA / BETA  # where 2(p-1)α equals 2(p-1)/p nβ
    ax.set(xscale="log", xlabel="size of the array", ylabel="share of time spent on bytes", ylim=(0, 1))
    ax.set_xticks(sizes[1::4], [style.size(n) for n in sizes[1::4]])
    ax.minorticks_off()
    ax.legend()
    style.title(fig, f"On {p} ranks the ring is latency-bound up to arrays of about {style.size(half)}")
fig

# %% [markdown]
# ## The same function on real processes
#
# Nothing in `ring` depends on its ranks being virtual. With `world="mpi"`, the same function runs on four processes
# under `mpirun`.


# %%
def on_four(comm):
    x = np.full(8, 10**comm.rank, dtype=np.int64)
    ring(x, comm)
    return x


def sent(run):
    return [(rank.sent.num_spans, rank.sent.num_bytes) for rank in run.trace.statistics()]


virtual = sd.run(on_four, ranks=4)
try:
    real = sd.run(on_four, ranks=4, world="mpi")
except sd.WorldUnavailable as missing:
    print(f"Passed over: {missing}")
else:
    for rank, x in enumerate(real.results):
        print(f"rank {rank}, a process: {x}")
    assert sent(real) == sent(virtual)
    messages, num_bytes = sent(real)[0]
    print(f"each rank sent {messages} messages, {num_bytes} bytes in all, as the virtual ranks did")

# %% [markdown]
# If one rank raises an exception, all processes end, and its traceback appears here with the rank's number. They also
# end if you interrupt the kernel (the square button).
#
# ## When it goes wrong
#
# A send may have to wait until its receiver is ready. If all ranks send first and receive afterwards, then all wait,
# and no receive ever starts: a *deadlock*. On real machines such a program may work for short arrays and hang only for
# long ones. In the virtual world it fails at once, and the error says which rank waits for which:


# %%
def hangs(comm):
    x, y = np.ones(100_000), np.empty(100_000)
    comm.send(x, (comm.rank + 1) % comm.size)
    comm.recv(y, (comm.rank - 1) % comm.size)


try:
    sd.run(hangs, ranks=3)
except sd.DeadlockError as error:
    print(error)

# %% [markdown]
# What if every message is received, but carries the wrong chunk? This ring has one mistake. Look at its steps on four
# ranks and find it:


# %%
def broken(x, comm):
    p, r = comm.size, comm.rank
    after, before = (r + 1) % p, (r - 1) % p
    chunk = partition(len(x), p)
    incoming = np.empty_like(x)
    for k in range(1, p):
        give, take = chunk[(r - k) % p], chunk[(r - k - 1) % p]
        comm.sendrecv(x[give], after, incoming[take], before)
        x[take] += incoming[take]
    for k in range(p - 1):
        give, take = chunk[(r - k - 1) % p], chunk[(r - k - 2) % p]
        comm.sendrecv(x[give], after, x[take], before)


collective_steps(watched("all_reduce", broken, ranks=4))

# %% [markdown]
# This is puzzle 3. Fix `broken` in the cell above, run that cell, and check your answer here; `puzzle(3).hint()` gives
# a small hint.

# %%
puzzle(3).check(broken)

# %% [markdown]
# ## To take along
#
# * All-reduce is a reduce-scatter followed by an all-gather.
# * On a ring each rank sends $2\frac{p-1}{p}n$ bytes: less than $2n$ on any number of ranks. No algorithm can do with
#   less on its busiest rank.
# * The ring takes $2(p-1)$ steps. For short arrays, or on very many ranks, the α of each step dominates.
#
# **Try:** Draw the steps on five ranks. Make rank 2 slow, with `plain = plain.with_(slow={2: 3.0})`; define `late(x,
# comm)` as `comm.compute(seconds=1e-3)` followed by `ring(x, comm)`, and draw the timeline of `timed(late, 4)`: who
# waits for whom? Solve puzzles 1, 2, 5, 8 and 9 (`puzzle(1)` shows the task).
#
# **Read:** [`simdist/collectives/ring.py`](../simdist/collectives/ring.py), the same code for any operation and any
# order of the ranks; [`simdist/cluster/network.py`](../simdist/cluster/network.py), which models how long a message
# takes; Patarasuk and Yuan 2009, *Bandwidth optimal all-reduce algorithms for clusters of workstations*, J. Parallel
# Distrib. Comput. 69(2).
#
# **Next:** [the zoo of collectives](02_collectives.ipynb): other algorithms, and when they are faster.
