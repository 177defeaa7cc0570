# %% [markdown]
# # 2. The zoo of collectives
#
# simdist has eleven algorithms that sum arrays over all ranks; the ring of [notebook 1](01_ring_all_reduce.ipynb) is
# one. Which is the fastest? On a given machine that depends on two numbers: the size of the array, and the number of
# ranks.
#
# You need no MPI; with one, the last section compares the model with real processes.

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
# A message of n bytes takes α + nβ: a *latency* α, however short it is, and a time β for each byte. Adding one byte to
# another takes γ. Nearly all papers on collectives use this model, and so does the virtual clock here.

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
# So an algorithm has two costs: how many messages follow **one after the other** (times α), and how many bytes pass
# through **the busiest rank** (times β).
#
# ## Three ways to all-reduce
#
# **Recursive doubling.** In each round, ranks exchange *everything* with a partner twice as far away as in the round
# before. That takes lg p rounds (lg is the logarithm to base 2), and sends the whole array in each.

# %%
collective_steps(watched("all_reduce", "recursive_doubling", ranks=4))

# %% [markdown]
# **Rabenseifner.** Exchange halves with the farthest partner, then quarters, and so on, until each rank has 1/p of the
# sum; then run the rounds in reverse. Twice the rounds, but only the bytes of the ring.

# %%
collective_steps(watched("all_reduce", "rabenseifner", ranks=4))

# %% [markdown]
# And **the ring**, with 2(p-1) rounds. Choose any other algorithm, on any number of ranks:


# %%
def show(algorithm, ranks):
    display(collective_steps(watched("all_reduce", algorithm, ranks=ranks)))


ipywidgets.interactive(show, algorithm=algorithms("all_reduce"), ranks=(2, 9))

# %% [markdown]
# ## Which one is fastest?
#
# The published costs of these algorithms, in units of α, of nβ and of nγ, on 16 ranks; and the resulting times for a
# short and for a long array. The virtual ranks' clock agrees.

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
# Both axes are logarithmic. On the left, where the lines are flat, all the time is latency; on the right, where they
# rise, it is bandwidth. In between, one algorithm overtakes the other. You can compute where: set their times equal.

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
# Whatever the algorithm, after k messages in a row a rank can know about at most $2^k$ ranks: so at least ⌈lg p⌉ α. And
# in an all-reduce some rank has to send at least $2\frac{p-1}{p}n$ bytes (Chan et al. 2007). Each algorithm is a point
# relative to these bounds; the corner where both are met is (1, 1). Here the array is short. The double tree cuts a
# long one into segments and pipelines them: more latencies, but nearly the fewest bytes possible.

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
# On 12 ranks, which is not a power of two, recursive doubling and Rabenseifner's algorithm first fold four ranks into
# others, and pay for that. For the ring the number of ranks makes no difference.
#
# ## A machine has a hierarchy
#
# On a real cluster, links inside a node are faster than those between nodes, of which each rank has one. A flat ring
# does not know that: it leaves a node through one rank's link, while all other links are idle. The *hierarchical*
# all-reduce first sums inside each node, so that only a shard of the sum per rank has to cross. *multi_ring* runs as
# many rings as a node has ranks, each with its part of the array and its own link out of the node. Two nodes of eight
# H100s, an array of 4 MB and one of 400 MB (*phantoms*: arrays with a size but no data):


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
# Rows send, columns receive. In the hierarchical all-reduce, each rank sends much to the next rank of its node (dark),
# and little to one partner in the other node (light). But while it sums inside the nodes, the links between them are
# idle. multi_ring keeps all of these links busy all the time, which for the long array outweighs the additional bytes
# that cross. `auto`, the last line, chooses hierarchical for the short array and multi_ring for the long one.
#
# ## The other collectives
#
# The same trade-off for each operation: the fastest algorithm on 16 ranks, starting with the shortest arrays.

# %%
for operation in ("all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce", "all_to_all"):
    names = [name for name in algorithms(operation) if name not in SPECIAL]
    lines = {name: {} for name in names}
    for row in rows(operation, names, RANKS, [4**k for k in range(4, 13)], "virtual", flat):
        lines[row.algorithm][row.num_bytes] = round(row.predicted_s, 9)  # to a nanosecond: some are equal
    told = [f"{c.algorithm} from {style.size(c.num_bytes)}" for c in crossovers(lines)]
    print(f"{operation:15} {', '.join(told)}")

# %% [markdown]
# `algorithm="auto"` makes this choice with the cluster's model, or with the measurements of `simdist bench --tune`.
#
# ## Measured
#
# A model is only as good as its agreement with measurements. Two real processes send messages back and forth and add up
# arrays, which gives α, β and γ of this machine; then they all-reduce. Each time is the fastest of 30 repetitions,
# since everything else on the machine can only slow them down.

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
# Where measured and predicted lines diverge, something that the model does not know about takes time: Python between
# messages, caches, other programs. The title says by how much they differ.
#
# ## To take along
#
# * A collective has two costs, messages in a row and bytes through a rank. For short arrays, minimize messages; for
#   long ones, bytes. No algorithm minimizes both.
# * Between the two there is a crossover; set two times equal, and α, β, γ and p tell you where it is.
# * Match the machine: what crosses a slow link should already be summed, or cross on all such links at once.
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
