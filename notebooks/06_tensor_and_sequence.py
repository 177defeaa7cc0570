# %% [markdown]
# # 6. Tensor and sequence parallel
#
# A layer may be too large for one device, or too slow on it. And a text may be so long that its activations alone are
# too much. How do several ranks share *one layer*, and how do they share *one text*?
#
# You need Python and NumPy, and it helps to have read [where the memory goes](05_memory.ipynb): phantom arrays and the
# ledger come from there. One cell at the end runs on four real processes, if there is an MPI.

# %%
from dataclasses import replace
from functools import partial

import numpy as np

import simdist as sd
from simdist.arrays import Ledger, Meter, metered, partition, phantom, recorded
from simdist.cluster import preset
from simdist.collectives import all_gather, all_reduce
from simdist.comm import Mesh
from simdist.nn import Shape, gpt
from simdist.nn.layers import Attention
from simdist.parallel import DataParallel, Recipe
from simdist.parallel.parts import MeshParts
from simdist.parallel.precision import precision
from simdist.parallel.sequence import RINGS, Even, RingAttention, UlyssesAttention, Zigzag, ring_attention_cost
from simdist.plots import attention_work, shards, style, timeline

GIB = 2**30
H100 = preset("h100")  # nodes of eight, NVLink inside, InfiniBand between

# %% [markdown]
# ## Columns, then rows
#
# The larger half of a transformer's block is a perceptron, $y = \text{relu}(x A)\,B$. Let $A$ be cut into columns and
# $B$ into rows, one of each a rank:
#
# $$ x\,[A_0 | A_1] = [x A_0 | x A_1] \qquad\qquad
# [z_0 | z_1] \begin{bmatrix} B_0 \\ B_1 \end{bmatrix} = z_0 B_0 + z_1 B_1 $$
#
# A rank that has all of $x$ makes its own features of $z$, applies the relu to them, and makes from them a *summand* of
# $y$: all without a message. One all-reduce adds the summands up.

# %%
random = np.random.default_rng(0)
x, A, B = (random.normal(size=size) for size in ((16, 32), (32, 128), (128, 32)))


def relu(z):
    return np.maximum(z, 0)


def columns_then_rows(comm):
    own = partition(A.shape[1], comm.size)[comm.rank]
    y = relu(x @ A[:, own]) @ B[own]
    all_reduce(y, comm, algorithm="ring")
    return y


whole = relu(x @ A) @ B
run = sd.run(columns_then_rows, ranks=4)
print("largest difference from one rank:", max(np.abs(y - whole).max() for y in run.results))
assert all(np.allclose(y, whole) for y in run.results)

# %% [markdown]
# What if the cuts are the other way round, first rows, then columns? Then $x A$ is a sum over ranks, and
# $\text{relu}(a + b) \ne \text{relu}(a) + \text{relu}(b)$, so that there has to be an all-reduce *between* the two,
# of an array four times as wide, and an all-gather after them:


# %%
def rows_then_columns(comm):
    rows = partition(A.shape[0], comm.size)[comm.rank]
    columns = partition(B.shape[1], comm.size)[comm.rank]
    z = x[:, rows] @ A[rows]
    all_reduce(z, comm, algorithm="ring")
    part = relu(z) @ B[:, columns]
    return all_gather(part.T.copy(), comm, algorithm="ring").reshape(-1, len(x)).T


other = sd.run(rows_then_columns, ranks=4)
assert all(np.allclose(y, whole) for y in other.results)
for name, found in (("columns, then rows", run), ("rows, then columns", other)):
    print(f"{name}: rank 0 sends {found.trace.statistics()[0].sent.num_bytes:,} bytes")

# %% [markdown]
# ## A whole model
#
# The other half of a block, attention, is made for this cut: its heads do not know of each other, so each rank gets
# some heads (columns of the queries, keys and values), and the rows of the linear map behind them. What is left are
# the embedding and the logits, which are cut along the vocabulary. `MeshParts` gives a GPT its pieces, for a *mesh*
# of ranks with named axes; the axis that shares layers is `tp`, *tensor parallel*.

# %%
small = Shape(layers=1, width=24, heads=4, context=8, vocabulary=32)


def places(comm):
    parts = MeshParts(Mesh(comm, tp=4))
    return {p.name: p.place for p in gpt(small, parts).parameters}


shards(sd.run(places, ranks=4).results)

# %% [markdown]
# All that is large is cut. Grey is what all ranks have: norms, the biases of the row-parallel maps, the places of the
# embedding.
#
# ## What it costs
#
# Each block adds up twice forward, once behind attention and once behind the perceptron, and twice backward, where
# the derivatives by $x$ are a sum over the ranks. An all-reduce of $n$ bytes sends $2n\frac{t-1}{t}$, so with $b$
# texts of $s$ tokens and a width of $h$ a rank sends $8\,bsh\frac{t-1}{t}$ numbers a block. Outside of the blocks two
# more all-reduces belong to embedding and logits. Here are four blocks of a model with 4,096 wide rows, without
# numbers, at true size:

# %%
wide = Shape(layers=4, width=4096, heads=32, context=2048)
adam = Recipe("adamw", precision=precision("bf16"))


def backward(comm, shape, sizes, **options):
    """Forward and backward of one text on a mesh; returns the most bytes that this rank's activations took."""
    mesh, ledger = Mesh(comm, **sizes), Ledger(comm.clock)
    parts = MeshParts(mesh, algorithm="ring", all_to_all="pairwise", **options)
    with recorded(ledger):
        method = DataParallel(gpt(shape, parts), mesh.dp, adam, 0, spread=parts.spread(), memory=phantom)
        comm.barrier()
        with comm.span("step"):
            method.backward(phantom((1, shape.context + 1), np.uint8), 1.0)
    return ledger.peaks["activations"]


def measured(shape, sizes, **options):
    """Seconds, numbers of 2 bytes that rank 0 sent, and the bytes of its activations."""
    ranks = int(np.prod(list(sizes.values())))
    run = sd.run(lambda comm: backward(comm, shape, sizes, **options), ranks, cluster=H100)
    step = next(s for s in run.trace if s.name == "step" and s.rank == 0)
    sent = sum(s.bytes for s in run.trace.sends(0) if s.start_s >= step.start_s) / 2
    return step.seconds, sent, run.results[0]


cut = {t: measured(wide, {"tp": t}) for t in (1, 2, 4, 8, 16, 32)}
block = wide.context * wide.width
print("          numbers sent / bsh        time of")
print("ranks    measured    formula   forward + backward")
for t, (seconds, sent, _) in cut.items():
    formula = (8 * wide.layers + 4) * (t - 1) / t
    print(f"{t:5}{sent / block:12.2f}{formula:11.2f}{seconds * 1e3:15.2f} ms")
    assert abs(sent / block - formula) < 0.01 * max(formula, 1)

# %%
with style.styled():
    fig = style.figure(style.PAGE, 2.3)
    ax = fig.subplots()
    ranks = list(cut)
    ax.plot(ranks, [cut[t][0] * 1e3 for t in ranks], label="executed", **style.series(0))
    ax.plot(ranks, [cut[1][0] / t * 1e3 for t in ranks], label="if it were all shared, for nothing", **style.series(1))
    ax.axvline(8, color=style.INK, linewidth=0.6, linestyle=":")
    ax.text(8.2, cut[1][0] * 1e3, "a node has eight")
    ax.set(xscale="log", yscale="log", xlabel="ranks that share a layer", ylabel="forward + backward (ms)")
    ax.set_xticks(ranks, [str(t) for t in ranks])
    ax.set_yticks([0.5, 1, 2, 5, 10, 20], ["0.5", "1", "2", "5", "10", "20"])
    ax.minorticks_off()
    ax.legend()
    best = min(cut, key=lambda t: cut[t][0])
    style.title(
        fig,
        f"Fastest on {best} ranks: {2 * best} are {cut[2 * best][0] / cut[best][0]:.1f} times slower, across two nodes",
    )
fig

# %% [markdown]
# Tensor parallelism talks in every layer, and its messages hide beneath nothing: the next product needs their sum. So
# it stays inside a node, where links are fast.
#
# ## The rest of the layer
#
# Between the parts that are cut, every rank does the same work on the same $x$: norms, dropout, residual sums. They
# take little time, but their activations are kept on all of the ranks. *Megatron's sequence parallelism* shares this
# stretch out **along the tokens**. The all-reduce falls into its two halves: a reduce-scatter leaves each rank some
# tokens, and an all-gather brings them together again where the next cut layer begins.

# %%
print("tp 8                              activations      numbers sent / bsh")
for name, shared in (("all ranks keep what lies between", False), ("each keeps some of its tokens", True)):
    seconds, sent, activations = measured(wide, {"tp": 8}, sequence_parallel=shared)
    print(f"{name:34}{activations / 2**20:8.1f} MiB{sent / block:18.2f}")

# %% [markdown]
# (More numbers are sent, because the gathered input is not kept either: backward gathers it again.)
#
# ## Cutting the text
#
# Now the other direction. Let each of $p$ ranks have a $p$-th of the *tokens* of every text, from the first layer to
# the last. All that works on tokens one by one does not even notice. Only attention does: each query wants to see all
# keys before it, wherever they are. There are two ways to bring them together.
#
# * **Ulysses**: two all-to-alls. Before attention, each rank gives away some heads of its tokens and gets all tokens of
#   some heads. Attention is then an ordinary one. After it, back again.
# * **Ring attention**: queries stay, and the keys and values of all ranks go round, a block at a time. What a query
#   finds in each block is added up by a running softmax, so that nobody ever has all keys.

# %%
TOKENS, HEADS, WIDTH = 48, 8, 32
qkv = random.normal(size=(1, TOKENS, 3 * WIDTH))
expected, _ = Attention("attention", HEADS).forward(qkv)


def attend(comm, kind, split):
    cut = split(comm)
    y, _ = kind("attention", HEADS, cut).forward(cut.part(qkv))
    return cut.own(TOKENS), y


def items(run):
    return max(rank.sent.num_bytes for rank in run.trace.statistics()) / 8


ulysses = partial(UlyssesAttention, algorithm="pairwise")
for p in (2, 4, 8):
    print(f"{p} ranks")
    for name, kind, split in (("Ulysses", ulysses, Even), ("ring", RingAttention, Zigzag)):
        run = sd.run(attend, ranks=p, args=(kind, split))
        y = np.empty_like(expected)
        for own, part in run.results:
            y[:, own] = part
        formula = 4 * TOKENS * WIDTH / p * (p - 1) / p if name == "Ulysses" else 2 * TOKENS * WIDTH * (p - 1) / p
        error = np.abs(y - expected).max()
        print(f"  {name:8} differs by {error:.0e}, sends {items(run):6.0f} numbers, by formula {formula:6.0f}")
        assert error < 1e-12 and items(run) == formula

# %% [markdown]
# Both are the attention of one rank, to the last bits. Ulysses sends less the more ranks there are: what goes round the
# ring has to pass by everybody. But Ulysses needs at least as many heads as ranks, and ring attention hides its
# messages beneath the work on the block that is there.
#
# ## Zigzag
#
# A causal query looks at the keys *before* it. If ranks get runs of the text in order, the first has hardly anything to
# do, and all wait for the last. The remedy: cut the text into $2p$ runs, and give each rank one from the front and one
# from the back.

# %%
long = Shape(layers=1, width=4096, heads=32, context=32768)
by_split = {
    name: sd.run(lambda comm, kind=kind: backward(comm, long, {"sp": 4}, attention=kind), 4, cluster=H100)
    for name, kind in (("in order", "even-ring"), ("zigzag", "ring"))
}
attention_work({name: run.trace for name, run in by_split.items()})

# %%
for name, run in by_split.items():
    spent = max(s.seconds for s in run.trace if s.name in RINGS)
    print(f"{name:9} the longer pass of ring attention takes {spent * 1e3:.1f} ms")

# %% [markdown]
# On the timeline of two of the four ranks: while a rank works on one block of keys, the next is on its way.

# %%
zigzag = by_split["zigzag"].trace
forward = next(s for s in zigzag if s.name == RINGS[0] and s.rank == 0)
timeline(zigzag, ranks=[0, 1], start_s=forward.start_s, end_s=forward.end_s, arrows=True)

# %% [markdown]
# In numbers, a rank's messages in each pass are **counted** beforehand, and **measured** on the record:

# %%
for backwards, name in enumerate(RINGS):
    ring = next(s for s in zigzag if s.name == name and s.rank == 0)
    sends = [s for s in zigzag.sends(0) if ring.start_s <= s.start_s < ring.end_s]
    counted = ring_attention_cost(4, ring.bytes, 2, backward=bool(backwards))
    print(
        f"{name}: {len(sends)} messages of {sum(s.bytes for s in sends):,} bytes;"
        f" counted {counted.messages} of {counted.sent_bytes:,}"
    )

# %% [markdown]
# ## How long may a text be?
#
# What an activation takes is what a text is limited by. Each line doubles the text, and the ranks that share it:

# %%
print("   tokens   ranks    activations a rank        time")
for p in (1, 2, 4, 8):
    shape = Shape(layers=2, width=4096, heads=32, context=8192 * p, recompute="selective")
    for kind, flash in (("ulysses", False), ("ulysses", True), ("ring", False))[: 2 if p == 1 else 3]:
        seconds, _, activations = measured(replace(shape, flash=flash), {"sp": p}, attention=kind)
        name = (kind if p > 1 else "one rank") + (", flash" if flash else "")
        print(f"{shape.context:9,}{p:8}{activations / GIB:15.2f} GiB{seconds * 1e3:15.1f} ms   {name}")

# %% [markdown]
# With ring attention a rank's memory is the same for every number of ranks that share. Ulysses takes more: where a rank
# attends to the whole text, it makes all scores of its heads, and their number grows with the square of the text; but
# not with flash (notebook 5), which never has more of them than a tile. Time grows in all, because each query has more
# keys to look at. With all scores at once it grows most, and not because of messages:


# %%
def meter(comm, kind, split):
    here, tokens = Meter(), 32768 // comm.size
    with metered(here):
        layer = kind("attention", 32, split(comm))
        _, context = layer.forward(phantom((1, tokens, 3 * 4096), adam.precision.dtype))
        layer.backward_input(context, phantom((1, tokens, 4096), adam.precision.dtype))
    return here


ways = {
    "Ulysses": (partial(ulysses, recompute=True), Even),
    "Ulysses, flash": (partial(ulysses, flash=True), Even),
    "ring": (RingAttention, Zigzag),
}
for name, way in ways.items():
    here = sd.run(meter, ranks=4, args=way).results[0]
    computing, moving = here.flops / H100.device.flops_per_s, here.bytes / H100.device.memory_bytes_per_s
    print(f"{name:15} {here.flops / 1e12:5.1f} Tflop need {computing * 1e3:5.1f} ms,", end=" ")
    print(f"{here.bytes / 1e9:5.0f} GB in and out of memory {moving * 1e3:5.1f} ms")

# %% [markdown]
# Scores that are written and read again go through a device's memory, which is slow beside its arithmetic. Flash, and
# the ring, which meets a block of keys at a time, let each tile's scores be made and used where they are, on the chip:
# what is left is arithmetic.
#
# ## On real processes
#
# The first function of this notebook, on four processes under `mpirun`:

# %%
try:
    real = sd.run(columns_then_rows, ranks=4, world="mpi")
except sd.WorldUnavailable as missing:
    print(f"Passed over: {missing}")
else:
    assert all(np.allclose(y, whole) for y in real.results)
    print("each of four processes has the same y as one rank that has all of A and B")

# %% [markdown]
# ## Find the mistake
#
# A bias belongs to the second map, $y = \text{relu}(xA)B + c$. Here it is. What is wrong? The largest difference from
# the right answer tells it, if you look at how it changes with the number of ranks.

# %%
c = np.ones(32)


def with_bias(comm):
    own = partition(A.shape[1], comm.size)[comm.rank]
    y = relu(x @ A[:, own]) @ B[own] + c
    all_reduce(y, comm, algorithm="ring")
    return y


for p in (1, 2, 4):
    print(f"{p} ranks: differs by {np.abs(sd.run(with_bias, ranks=p).results[0] - (whole + c)).max():.1f}")

# %% [markdown]
# ## To take along
#
# * A map that is cut into columns, then one that is cut into rows: one all-reduce forward, one backward, and nothing
#   between them. Attention's heads are columns.
# * Its messages wait for nothing to hide beneath, so tensor parallelism stays where links are fastest.
# * A text can be cut, too: Ulysses exchanges tokens for heads, ring attention lets keys come by; a causal text is cut
#   in a zigzag.
#
# **Try:** tp 3 in `places`: what does it say? `attention="even-ring"` in the last table. `shards` of a mesh with
# `tp=2, sp=2`. Puzzles 20, 25 and 26.
#
# **Read:** [`simdist/parallel/tensor/linear.py`](../simdist/parallel/tensor/linear.py) and
# [`region.py`](../simdist/parallel/tensor/region.py) (Shoeybi et al. 2019, *Megatron-LM*, arXiv 1909.08053; Korthikanti
# et al. 2022, arXiv 2205.05198); [`simdist/parallel/sequence/`](../simdist/parallel/sequence/) (Jacobs et al. 2023,
# *DeepSpeed Ulysses*, arXiv 2309.14509; Liu, Zaharia, Abbeel 2023, *Ring attention*, arXiv 2310.01889).
#
# **Next:** [experts](07_experts.ipynb): many perceptrons, of which each token visits a few.
