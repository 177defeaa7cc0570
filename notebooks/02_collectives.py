# %% [markdown]
# # 2. The zoo of collectives
#
# There are eleven ways here to sum arrays over all ranks; the ring of [notebook 1](01_ring_all_reduce.ipynb) is one.
# Which is the fastest? On one machine it depends on two numbers: how long the array is, and how many ranks there are.
#
# You need no MPI; with one, the last section holds a model against real processes.

# %%
from dataclasses import replace
from math import ceil, log2

import ipywidgets
import numpy as np
from IPython.display import display

import simdist as sd
from simdist.arrays import phantom
from simdist.bench.measure import rows
from simdist.cluster import Cluster, Device, Link, preset
from simdist.cluster.calibration import calibrated
from simdist.collectives import algorithms, all_reduce, formula
from simdist.collectives.watch import watched
from simdist.plots import collective_steps, crossovers, style, sweep, traffic

for operation in ("all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce", "all_to_all", "gather"):
    print(f"{operation:15}", ", ".join(algorithms(operation)))

# %% [markdown]
# ## What a message costs
#
# A message of n bytes takes α + nβ: a *latency* α, however short it is, and a time β for each byte. Adding a byte to
# another takes γ. This is the model of nearly all papers on collectives, and of the virtual clock here.

# %%
ALPHA, BETA, GAMMA = 5e-6, 1 / 25e9, 1 / 200e9
wire = Link(latency_s=ALPHA, bytes_per_s=1 / BETA)
device = Device("some GPU", flops_per_s=1e15, memory_bytes_per_s=3 / GAMMA, memory_bytes=80e9)  # x += y: 3 accesses
flat = Cluster("flat", device, inside=wire, between=wire, devices_per_node=1024)


def one_message(comm, n):
    x = np.zeros(n, np.uint8)
    if comm.rank == 0:
        comm.send(x, 1)
    else:
        comm.recv(x, 0)


print("    bytes    on the clock    α + nβ")
for n in (1, 10_000, 125_000, 10_000_000):
    clock_s = sd.run(one_message, 2, cluster=flat, args=(n,)).elapsed_s
    print(f"{n:9,} {clock_s * 1e6:11.2f} µs {(ALPHA + n * BETA) * 1e6:9.2f} µs")
    assert abs(clock_s - (ALPHA + n * BETA)) < 1e-9
print(f"at {ALPHA / BETA:,.0f} bytes, α/β, half of the time is latency")

# %% [markdown]
# So an algorithm has two prices: how many messages come **one after the other** (its α), and how many bytes pass
# through **the busiest rank** (its β).
#
# ## Three ways to all-reduce
#
# **Recursive doubling.** In each round, ranks exchange *everything* with a partner twice as far away as before. It is
# through after lg p rounds (lg is the logarithm to base 2), and sends the whole array in each.

# %%
collective_steps(watched("all_reduce", "recursive_doubling", ranks=4))

# %% [markdown]
# **Rabenseifner.** Exchange halves with the farthest partner, then quarters, and so on, until each rank has a p-th of
# the sum; then play the rounds backwards. Twice the rounds, but the bytes of the ring.

# %%
collective_steps(watched("all_reduce", "rabenseifner", ranks=4))

# %% [markdown]
# And **the ring**, with 2(p-1) rounds. Look at any other one, on any number of ranks:


# %%
def show(algorithm, ranks):
    display(collective_steps(watched("all_reduce", algorithm, ranks=ranks)))


ipywidgets.interactive(show, algorithm=algorithms("all_reduce"), ranks=(2, 9))

# %% [markdown]
# ## Which one when
#
# Their published times, as numbers of α, of nβ and of nγ, on 16 ranks; and what that gives for a short and for a long
# array. The virtual ranks' clock says the same.

# %%
ways = ["recursive_doubling", "rabenseifner", "ring", "tree", "naive"]
RANKS = 16
table = rows("all_reduce", ways, RANKS, [4**k for k in range(4, 14)], "virtual", flat)
print(f"{RANKS} ranks              α      nβ      nγ     1 KiB: formula   clock     16 MiB: formula   clock")
for way in ways:
    n = 1 << 20
    f = formula("all_reduce", way, ranks=RANKS, num_bytes=n)
    short, long = (next(r for r in table if (r.algorithm, r.num_bytes) == (way, size)) for size in (1 << 10, 1 << 24))
    times = f"{short.formula_s * 1e6:12.0f} µs {short.predicted_s * 1e6:5.0f} µs"
    times += f" {long.formula_s * 1e3:14.2f} ms {long.predicted_s * 1e3:5.2f} ms"
    print(f"{way:18} {f.latencies:4g} {f.bytes / n:7.3f} {f.reduced_bytes / n:7.3f} {times}")
sweep(table)

# %% [markdown]
# Both axes are logarithmic. Left, where lines are flat, a time is all α; right, where they rise, all β. Between the
# two, one algorithm overtakes the other. Where, can be computed: set their times equal.

# %%
lines = {way: {r.num_bytes: r.predicted_s for r in table if r.algorithm == way} for way in ways}
for change in crossovers(lines):
    print(f"from {style.size(change.num_bytes):>8}: {change.algorithm}")
a, b = (formula("all_reduce", way, ranks=RANKS, num_bytes=1) for way in ("recursive_doubling", "rabenseifner"))
alphas = b.latencies - a.latencies
betas, gammas = a.bytes - b.bytes, a.reduced_bytes - b.reduced_bytes
n = alphas * ALPHA / (betas * BETA + gammas * GAMMA)
print(f"by hand: {alphas:g} α more equal {betas:g} nβ + {gammas:g} nγ less at n = {style.size(n)}")

# %% [markdown]
# ## As good as can be
#
# However clever an algorithm is, after k messages in a row a rank can have heard of no more than $2^k$ ranks: at least
# ⌈lg p⌉ α. And in an all-reduce some rank has to move at least $2\frac{p-1}{p}n$ bytes (Chan et al. 2007). Each
# algorithm is a point over these bounds; the corner where both meet is at (1, 1). Here the array is short. A long one
# the double tree cuts into segments, which follow each other: more latencies, but almost as few bytes as can be.

# %%
SPECIAL = ("direct", "hierarchical", "multi_ring")  # for ranks that share memory, and for several nodes
others = [way for way in algorithms("all_reduce") if way not in SPECIAL]
with style.styled():
    fig = style.figure(style.PAGE, 2.9)
    axes = fig.subplots(1, 2, sharex=True, sharey=True)
    for ax, p in zip(axes, (RANKS, 12), strict=True):
        found = {way: formula("all_reduce", way, ranks=p, num_bytes=p) for way in others}
        points = {w: (f.latencies / ceil(log2(p)), f.bytes / (2 * (p - 1))) for w, f in found.items()}
        for i, (way, (x, y)) in enumerate(points.items()):
            ax.plot(x, y, label=way, linestyle="", **{**style.series(i), "markersize": 6})
        ax.axvline(1, color=style.INK, linewidth=0.6)
        ax.axhline(1, color=style.INK, linewidth=0.6)
        ax.set(xscale="log", yscale="log", xlabel="latencies, by the least possible", title=f"{p} ranks")
        ax.set_xticks([1, 2, 4, 8], ["1", "2", "4", "8"])
        ax.set_yticks([1, 2, 4, 8], ["1", "2", "4", "8"])
        ax.minorticks_off()
        least = {axis: [w for w in points if points[w][axis] < 1.001] for axis in (0, 1)}
        print(f"{p} ranks: fewest latencies: {least[0]}; fewest bytes: {least[1]}")
        assert not set(least[0]) & set(least[1])
    axes[0].set_ylabel("bytes, by the least possible")
    style.legend(fig, axes[0].get_legend_handles_labels()[0], "The two rings lie in one place.", letters=16)
    style.title(fig, "Nobody reaches the corner: no algorithm has the fewest latencies and the fewest bytes")
fig

# %% [markdown]
# On 12 ranks, which is no power of two, recursive doubling and Rabenseifner's algorithm first fold four ranks into
# others, and pay for it. The ring does not care.
#
# ## A machine has levels
#
# On a real cluster, links inside a node are faster than those between nodes, of which each rank has one. A flat ring
# does not know that: it leaves a node by one rank's link, and all others idle. The *hierarchical* all-reduce sums up
# inside each node first, and lets only a share of the array cross. *multi_ring* has as many rings as a node has ranks,
# and a part of the array goes round each: they leave the node by a link each. Two nodes of eight H100, an array of 4 MB
# and one of 400 MB (*phantoms*: arrays with a size and no numbers):


# %%
def sums(comm, algorithm, items=1_000_000):
    all_reduce(phantom((items,), np.float32), comm, algorithm=algorithm)


h100 = preset("h100")
print("                         4 MB     400 MB    n bytes between the nodes")
for algorithm in ("recursive_doubling", "ring", "hierarchical", "multi_ring", "auto"):
    both = [sd.run(sums, 16, cluster=h100, args=(algorithm, items)) for items in (1_000_000, 100_000_000)]
    sent = [run.trace.traffic() for run in both]
    crossed = [f"{(s[:8, 8:].sum() + s[8:, :8].sum()) / n:.2f}" for s, n in zip(sent, (4e6, 4e8), strict=True)]
    print(f"{algorithm:20}" + "".join(f"{run.elapsed_s * 1e6:8.0f} µs" for run in both), " ", *dict.fromkeys(crossed))
traffic(sd.run(sums, 16, cluster=h100, args=("hierarchical",)).trace)

# %% [markdown]
# Rows send, columns receive. In the hierarchical one, inside a node each rank sends to the next one, and much (dark);
# between the nodes each sends to one partner, and little (light). But while it sums up inside the nodes, nothing
# crosses. In the many rings something crosses on all links all the time, which for the long array outweighs that more
# bytes cross. `auto`, the last line, takes the one for the short array and the other for the long one.
#
# ## The other collectives
#
# The same trade, operation by operation: the fastest on 16 ranks, from the shortest arrays on.

# %%
for operation in ("all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce", "all_to_all"):
    names = [name for name in algorithms(operation) if name not in SPECIAL]
    lines = {name: {} for name in names}
    for row in rows(operation, names, RANKS, [4**k for k in range(4, 13)], "virtual", flat):
        lines[row.algorithm][row.num_bytes] = round(row.predicted_s, 9)  # to a nanosecond: some are equal
    told = [f"{c.algorithm} from {style.size(c.num_bytes)}" for c in crossovers(lines)]
    print(f"{operation:15} {', '.join(told)}")

# %% [markdown]
# `algorithm="auto"` makes this choice from the cluster's model, or from what `simdist bench --tune` has measured.
#
# ## Measured
#
# Models are worth what measurements leave of them. Two real processes send messages to and fro and add up arrays, from
# which α, β and γ of this machine follow; then they all-reduce. The quickest of 30 counts, since everything else on
# the machine only slows them down.

# %%
SIZES = [4**k for k in range(5, 11)]
PAIR = ["recursive_doubling", "tree"]  # on two ranks: one message in a row, and two


def quickest(comm, action):
    best_s = np.inf
    for _ in range(30):
        comm.barrier()
        start_s = comm.clock()
        action()
        best_s = min(best_s, comm.clock() - start_s)
    return best_s


def to_and_fro(comm, x):
    if comm.rank == 0:
        comm.send(x, 1)
        comm.recv(x, 1)
    else:
        comm.recv(x, 0)
        comm.send(x, 0)


def clocked(comm):
    found = {}
    for size in SIZES:
        x, y = np.zeros(size // 4, np.float32), np.zeros(size // 4, np.float32)
        found["message", size] = quickest(comm, lambda x=x: to_and_fro(comm, x)) / 2
        found["add", size] = quickest(comm, lambda x=x, y=y: np.add(x, y, out=x))
        for way in PAIR:
            found[way, size] = quickest(comm, lambda x=x, way=way: all_reduce(x, comm, algorithm=way))
    return found


try:
    measured = sd.run(clocked, ranks=2, world="mpi", record=False, check=False).results
except sd.WorldUnavailable as missing:
    print(f"Passed over: {missing}")
else:
    worst = {what: max(found[what] for found in measured) for what in measured[0]}
    here = calibrated([(n, worst["message", n]) for n in SIZES], [(n, worst["add", n]) for n in SIZES])
    told = rows("all_reduce", PAIR, 2, SIZES, "virtual", here)
    table = [replace(row, measured_s=worst[row.algorithm, row.num_bytes]) for row in told]
    print(f"this machine: α = {here.inside.latency_s * 1e6:.1f} µs, 1/β = {here.inside.bytes_per_s / 1e9:.1f} GB/s")
    display(sweep(table))

# %% [markdown]
# Where measured and predicted lines part, something costs time that the model does not know: Python between messages,
# caches, other programs. The title says by how much they differ.
#
# ## To take along
#
# * A collective has two prices, messages in a row and bytes through a rank. Short arrays: few messages. Long ones: few
#   bytes. No algorithm has the least of both.
# * Between the two there is a crossover; its place follows from α, β, γ and p by equating two times.
# * Follow the machine: what crosses a slow link should be summed up already, or cross on all such links at once.
#
# **Try:** α ten times as long: where does the crossover go? `RANKS = 17`. `sweep` of the `rows` of `"broadcast"`.
# Puzzles 6, 7 and 10 to 13: `from simdist.puzzles import puzzle`.
#
# **Read:** [`collectives/recursive.py`](../simdist/collectives/recursive.py),
# [`collectives/rabenseifner.py`](../simdist/collectives/rabenseifner.py),
# [`collectives/cost.py`](../simdist/collectives/cost.py),
# [`collectives/hierarchical.py`](../simdist/collectives/hierarchical.py), and
# [`collectives/multi_ring.py`](../simdist/collectives/multi_ring.py). Thakur, Rabenseifner and Gropp 2005,
# *Optimization of collective communication operations in MPICH*; Chan, Heimlich, Purkayastha and van de Geijn 2007,
# *Collective communication: theory, practice, and experience*.
#
# **Next:** [who waits for whom](03_who_waits.ipynb): what if not all ranks are equally fast?
