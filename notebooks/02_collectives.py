# %% [markdown]
# # 2. The zoo of collectives
#
# The ring of [notebook 1](01_ring_all_reduce.ipynb) is one of eleven algorithms in simdist that sum arrays over all
# ranks. Which is the fastest? On a given machine, that depends on the size of the array and on the number of ranks.
#
# You do not need MPI. If it is installed, the last section compares the model with real processes. First, a list of
# *collectives*, the operations in which all ranks take part, each with its algorithms:

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
# A message of n bytes takes the time α + nβ: a *latency* α however short it is, and β for each byte. Adding takes γ per
# byte. Nearly all papers on collectives use this model, and so does the virtual clock here.

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
print(f"at α/β = {ALPHA / BETA:,.0f} bytes, half of the time is latency")

# %% [markdown]
# So two numbers decide what an algorithm costs: how many messages have to follow **one after the other** (times α), and
# how many bytes pass through **the busiest rank** (times β).
#
# ## Three ways to all-reduce
#
# **Recursive doubling.** In each round, every rank exchanges the *whole array* with a partner that is twice as far away
# as in the round before. That takes lg p rounds (lg is the logarithm to base 2).

# %%
collective_steps(watched("all_reduce", "recursive_doubling", ranks=4))

# %% [markdown]
# **Rabenseifner.** Every rank exchanges half of the array with the farthest partner, then a quarter with a nearer one,
# and so on, until it has 1/p of the sum. Then the same rounds run in reverse and spread these parts. This takes twice
# as many rounds, but sends no more bytes than the ring.

# %%
collective_steps(watched("all_reduce", "rabenseifner", ranks=4))

# %% [markdown]
# The third way is **the ring**, with 2(p-1) rounds. Here you can draw any algorithm on any number of ranks from 2 to 9:


# %%
def show(algorithm, ranks):
    display(collective_steps(watched("all_reduce", algorithm, ranks=ranks)))


ipywidgets.interactive(show, algorithm=algorithms("all_reduce"), ranks=(2, 9))

# %% [markdown]
# ## Which one is fastest?
#
# The table shows the published costs of five algorithms on 16 ranks: how many α, nβ and nγ. Beside the time that
# follows from this formula, for a short array and for a long one, stands the time on the virtual ranks' clock
# (*predicted* in the picture). (*tree* sums along a tree to rank 0, which broadcasts the sum along the same tree; in
# *naive* every rank sends its whole array to every other rank, one after another.)

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
# Both axes are logarithmic. On the left, where the lines are flat, nearly all the time is latency; on the right, where
# they rise steadily, nearly all is spent on bytes. In between, one algorithm overtakes another. To find out at which
# size, set their times equal:

# %%
lines = {way: {r.num_bytes: r.predicted_s for r in table if r.algorithm == way} for way in ways}
for change in crossovers(lines):
    print(f"from {style.size(change.num_bytes):>8}: {change.algorithm}")
a, b = (formula("all_reduce", way, ranks=RANKS, num_bytes=1) for way in ("recursive_doubling", "rabenseifner"))
alphas = b.latencies - a.latencies
betas, gammas = a.bytes - b.bytes, a.reduced_bytes - b.reduced_bytes
n = alphas * ALPHA / (betas * BETA + gammas * GAMMA)
print(f"by hand: {alphas:g} α more equals {betas:g} nβ + {gammas:g} nγ less at n = {style.size(n)}")

# %% [markdown]
# ## Lower bounds
#
# How good can an algorithm be? If a rank sends and receives one message at a time, each can at most double the number
# of ranks whose data it has seen, so every all-reduce takes at least ⌈lg p⌉ α. And some rank has to send at least
# $2\frac{p-1}{p}n$ bytes (Chan et al. 2007). In the picture, each algorithm is a point relative to these bounds; a
# point at (1, 1) would meet both. (The array is short. The double tree cuts a long one into segments that follow each
# other down the tree, which takes more latencies but nearly the fewest bytes possible.)

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
        ax.set(xscale="log", yscale="log", xlabel="latencies / lower bound", title=f"{p} ranks")
        ax.set_xticks([1, 2, 4, 8], ["1", "2", "4", "8"])
        ax.set_yticks([1, 2, 4, 8], ["1", "2", "4", "8"])
        ax.minorticks_off()
        least = {axis: [w for w in points if points[w][axis] < 1.001] for axis in (0, 1)}
        print(f"{p} ranks: fewest latencies: {least[0]}; fewest bytes: {least[1]}")
        assert not set(least[0]) & set(least[1])
    axes[0].set_ylabel("bytes / lower bound")
    style.legend(fig, axes[0].get_legend_handles_labels()[0], "The markers of the two rings coincide.", letters=16)
    style.title(fig, "No algorithm has both the fewest latencies and the fewest bytes: the corner is empty")
fig

# %% [markdown]
# Twelve is not a power of two. Recursive doubling and Rabenseifner's algorithm therefore first add the arrays of four
# ranks to those of four others, which makes them miss the bounds. The rings send the fewest bytes on any number of
# ranks.
#
# ## A machine has a hierarchy
#
# A real cluster consists of *nodes*, machines with several devices each, and links inside a node are faster than links
# between nodes. Here each rank has its own link to other nodes. A single ring leaves a node through one rank's link,
# while the links of the other ranks are idle. Two algorithms do better. *hierarchical* first sums inside each node, so
# that each rank has to send only its share (*shard*) of the node's sum to another node. *multi_ring* runs as many rings
# as a node has ranks, each with its own part of the array and its own link out of the node.
#
# The table compares them on two nodes of eight H100s, for an array of 4 MB and one of 400 MB. (H100s are GPUs made by
# NVIDIA; the links inside a node are called NVLink, those between nodes InfiniBand. The arrays are *phantoms*: they
# have a size but no data.)


# %%
def sums(comm, algorithm, items=1_000_000):
    all_reduce(phantom((items,), np.float32), comm, algorithm=algorithm)


h100 = preset("h100")
print("                         4 MB     400 MB    sent between nodes / n")
for algorithm in ("recursive_doubling", "ring", "hierarchical", "multi_ring", "auto"):
    both = [sd.run(sums, 16, cluster=h100, args=(algorithm, items)) for items in (1_000_000, 100_000_000)]
    sent = [run.trace.traffic() for run in both]
    crossed = [f"{(s[:8, 8:].sum() + s[8:, :8].sum()) / n:.2f}" for s, n in zip(sent, (4e6, 4e8), strict=True)]
    print(f"{algorithm:20}" + "".join(f"{run.elapsed_s * 1e6:8.0f} µs" for run in both), " ", *dict.fromkeys(crossed))
traffic(sd.run(sums, 16, cluster=h100, args=("hierarchical",)).trace)

# %% [markdown]
# The picture shows the hierarchical all-reduce; rows send, columns receive. Each rank sends much to the next rank of
# its node (dark), and little to a partner in the other (light). But while the nodes sum, the links between them are
# idle. multi_ring keeps these links busy all the time, and for the long array this outweighs the additional bytes
# between nodes. `auto`, in the last line, chooses hierarchical for the short array and multi_ring for the long one.
#
# ## The other collectives
#
# The other operations have the same trade-off. For each, the cell prints which algorithm is fastest on 16 ranks, and
# from which size on.

# %%
for operation in ("all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce", "all_to_all"):
    names = [name for name in algorithms(operation) if name not in SPECIAL]
    lines = {name: {} for name in names}
    for row in rows(operation, names, RANKS, [4**k for k in range(4, 13)], "virtual", flat):
        lines[row.algorithm][row.num_bytes] = round(row.predicted_s, 9)  # to a nanosecond: some are equal
    changes = [f"{c.algorithm} from {style.size(c.num_bytes)}" for c in crossovers(lines)]
    print(f"{operation:15} {', '.join(changes)}")

# %% [markdown]
# Why is *linear* so often the fastest for short arrays? It starts all messages at once, and in this model a message
# keeps its sender busy only for the time of its bytes, so the latencies overlap. The published formula counts them one
# after the other, as on a machine where starting a message keeps the sender busy; only on such a machine does the bound
# of ⌈lg p⌉ α hold. In an all-to-all, where every rank sends a different block to every other, *linear* is the fastest
# at every size, because each rank begins with a different receiver. If all began with rank 0, most ports would be idle
# until their turn came.
#
# `algorithm="auto"` chooses by the cluster's model, or by the measurements of `simdist bench --tune`.
#
# ## Measured
#
# Does the model agree with a real machine? Two processes send messages back and forth and add arrays, which gives this
# machine's α, β and γ. Then they all-reduce, and the picture compares measured and predicted times. Each measured time
# is the shortest of 30, because other work on the machine can only make it longer.

# %%
SIZES = [4**k for k in range(5, 11)]
PAIR = ["recursive_doubling", "tree"]  # on two ranks: one message, and two one after the other


def quickest(comm, action):
    best_s = np.inf
    for _ in range(30):
        comm.barrier()
        start_s = comm.clock()
        action()
        best_s = min(best_s, comm.clock() - start_s)
    return best_s


def ping_pong(comm, x):
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
        found["message", size] = quickest(comm, lambda x=x: ping_pong(comm, x)) / 2
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
    predicted = rows("all_reduce", PAIR, 2, SIZES, "virtual", here)
    table = [replace(row, measured_s=worst[row.algorithm, row.num_bytes]) for row in predicted]
    print(f"this machine: α = {here.inside.latency_s * 1e6:.1f} µs, 1/β = {here.inside.bytes_per_s / 1e9:.1f} GB/s")
    display(sweep(table))

# %% [markdown]
# The title gives the median ratio of the two. Where the measured time is longer, something takes time that the model
# leaves out: Python between messages, caches, other programs.
#
# ## To take along
#
# * A collective has two costs: the messages that follow one after the other, and the bytes through the busiest rank.
#   Minimize messages for short arrays, and bytes for long ones. No algorithm minimizes both.
# * In between there is a crossover. To find it, set the times of two algorithms equal.
# * Match the machine: sum before you send over a slow link, or use all slow links at once.
#
# **Try:** Make α ten times as long: where does the crossover go? Set `RANKS = 17`. Pass `"broadcast"` and its
# algorithms to `rows`, and draw the `sweep`. Solve puzzles 6, 7 and 10 to 13: `from simdist.puzzles import puzzle`.
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
