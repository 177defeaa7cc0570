# %% [markdown]
# # 6. Tensor and sequence parallel
#
# A layer may be too large for one device, or too slow on it. A text (a sequence of tokens) may be so long that its
# activations do not fit. How can several ranks share *one layer*, and how can they share *one sequence*?
#
# You need to know what a rank and an all-reduce are ([notebook 1](01_ring_all_reduce.ipynb)). It helps to have read
# [where the memory goes](05_memory.ipynb), which introduces phantom arrays and the ledger. One cell near the end runs
# on four real processes, if MPI is installed.

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
from simdist.parallel.tensor import ColumnParallelLinear, Overlapped, RowParallelLinear, Sharded
from simdist.plots import attention_work, shards, style, timeline

GIB = 2**30
H100 = preset("h100")  # nodes of eight; fast links inside (NVLink), slower ones between (InfiniBand)

# %% [markdown]
# ## Columns, then rows
#
# A transformer block consists of attention and an MLP. The MLP is the larger half: $y = \text{relu}(x A)\,B$. Split $A$
# by columns and $B$ by rows, and give each rank one piece of both:
#
# $$ x\,[A_0 | A_1] = [x A_0 | x A_1] \qquad\qquad
# [z_0 | z_1] \begin{bmatrix} B_0 \\ B_1 \end{bmatrix} = z_0 B_0 + z_1 B_1 $$
#
# Every rank has all of $x$. It computes its own columns of $x A$, applies the relu to get its $z$, and multiplies this
# by its rows of $B$. The result is a *partial sum* of $y$. So far no message was needed. One all-reduce adds the
# partial sums:

# %%
random = np.random.default_rng(0)
x, A, B = (random.normal(size=size) for size in ((16, 32), (32, 128), (128, 32)))


def relu(z):
    return np.maximum(z, 0)


def columns_then_rows(comm):
    own = partition(A.shape[1], comm.size)[comm.rank]  # a slice: the columns of A, and the rows of B
    y = relu(x @ A[:, own]) @ B[own]
    all_reduce(y, comm, algorithm="ring")
    return y


whole = relu(x @ A) @ B
run = sd.run(columns_then_rows, ranks=4)
print(f"largest difference from one rank: {max(np.abs(y - whole).max() for y in run.results):.0e}")
assert all(np.allclose(y, whole) for y in run.results)

# %% [markdown]
# What if you split the other way round, $A$ by rows and $B$ by columns? Then $x A$ is a sum over ranks, and it has to
# be complete before the relu, because $\text{relu}(a + b) \ne \text{relu}(a) + \text{relu}(b)$. So you need an
# all-reduce *between* the two products, of an array four times as wide, and an all-gather after them:


# %%
def rows_then_columns(comm):
    rows = partition(A.shape[0], comm.size)[comm.rank]
    columns = partition(B.shape[1], comm.size)[comm.rank]
    z = x[:, rows] @ A[rows]
    all_reduce(z, comm, algorithm="ring")
    part = relu(z) @ B[:, columns]
    # All-gather appends rows to rows, so columns travel as the rows of the transpose.
    return all_gather(part.T.copy(), comm, algorithm="ring").reshape(-1, len(x)).T


other = sd.run(rows_then_columns, ranks=4)
assert all(np.allclose(y, whole) for y in other.results)
for name, found in (("columns, then rows", run), ("rows, then columns", other)):
    print(f"{name}: rank 0 sends {found.trace.statistics()[0].sent.num_bytes:,} bytes")

# %% [markdown]
# ## A whole model
#
# Attention, the other half of a block, is split in the same way. Its heads are independent, so each rank gets some of
# them: their columns of the queries, keys and values, and the matching rows of the projection that follows. The
# embedding and the logits are split along the vocabulary. `MeshParts` splits a GPT like this over a *mesh*, a grid of
# ranks with named axes. The ranks along the axis `tp`, for *tensor parallel*, share layers. Here is which rank holds
# what:

# %%
small = Shape(layers=1, width=24, heads=4, context=8, vocabulary=32)


def places(comm):
    parts = MeshParts(Mesh(comm, tp=4))
    return {p.name: p.place for p in gpt(small, parts).parameters}


shards(sd.run(places, ranks=4).results)

# %% [markdown]
# Nearly everything large is split: `qkv` (queries, keys, values) and `hidden` (the MLP's $A$) by columns, `attended`
# (the projection after attention) and `thought` ($B$) by rows, the embedding of tokens along the vocabulary. The grey
# parameters are replicated on all ranks: the norms, the biases of the layers that are split by rows, and the position
# embedding.
#
# ## What it costs
#
# Each block all-reduces twice in forward, once after attention and once after the MLP. It does so twice more in
# backward, where the gradient with respect to $x$ is a sum over the ranks. (The Megatron-LM paper draws two operators:
# *f*, where $x$ enters the split layers, does nothing in forward and all-reduces in backward; *g*, where $y$ leaves
# them, does the reverse.)
#
# In an all-reduce of $n$ numbers over $t$ ranks, a rank sends $2n\frac{t-1}{t}$. So with $b$ sequences of $s$ tokens
# and a width of $h$, it sends $8\,bsh\frac{t-1}{t}$ numbers per block. The embedding and the logits need two more
# all-reduces. The table is for a model of four blocks of width 4,096, with phantom arrays of true size:

# %%
wide = Shape(layers=4, width=4096, heads=32, context=2048)
adam = Recipe("adamw", precision=precision("bf16"))


def backward(comm, shape, sizes, **options):
    """Forward and backward of one text on a mesh; returns the peak bytes of this rank's activations."""
    mesh, ledger = Mesh(comm, **sizes), Ledger(comm.clock)
    parts = MeshParts(mesh, algorithm="ring", all_to_all="pairwise", **options)
    with recorded(ledger):
        method = DataParallel(gpt(shape, parts), mesh.dp, adam, 0, spread=parts.spread(), memory=phantom)
        comm.barrier()
        with comm.span("step"):
            method.backward(phantom((1, shape.context + 1), np.uint8), 1.0)
    return ledger.peaks["activations"]


def measured(shape, sizes, **options):
    """The seconds of a step, how many 2-byte numbers rank 0 sent in it, and the peak bytes of its activations."""
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
    ax.plot(ranks, [cut[1][0] / t * 1e3 for t in ranks], label="ideal: work split, free messages", **style.series(1))
    ax.axvline(8, color=style.INK, linewidth=0.6, linestyle=":")
    ax.text(8.2, cut[1][0] * 1e3, "8 ranks per node")
    ax.set(xscale="log", yscale="log", xlabel="ranks that share a layer", ylabel="forward + backward (ms)")
    ax.set_xticks(ranks, [str(t) for t in ranks])
    ax.set_yticks([0.5, 1, 2, 5, 10, 20], ["0.5", "1", "2", "5", "10", "20"])
    ax.minorticks_off()
    ax.legend()
    best = min(cut, key=lambda t: cut[t][0])
    style.title(
        fig,
        f"Fastest on {best} ranks; {2 * best}, on two nodes, take {cut[2 * best][0] / cut[best][0]:.1f} times as long",
    )
fig

# %% [markdown]
# Beyond one node, more ranks make the step slower. Tensor parallelism communicates in every layer, and no product can
# begin before the messages have brought what it needs. So use it inside a node, where links are fast.
#
# ## The rest of the layer
#
# Between the split layers, every rank does the same work on the same $x$: norms, dropout, residual sums. This takes
# little time, but every rank keeps a copy of the activations. *Megatron's sequence parallelism* splits this work
# **along the tokens**. To do so, it separates the all-reduce into its two halves: a reduce-scatter leaves each rank
# with some of the tokens, and an all-gather collects them again where the next split layer begins.

# %%
print("tp 8                              activations      numbers sent / bsh")
for name, shared in (("norms etc. kept on all ranks", False), ("norms etc. split by tokens", True)):
    seconds, sent, activations = measured(wide, {"tp": 8}, sequence_parallel=shared)
    print(f"{name:34}{activations / 2**20:8.1f} MiB{sent / block:18.2f}")

# %% [markdown]
# The ranks send more, because they do not keep the gathered input of a split layer either: backward gathers it again.
#
# ## Products while tokens travel
#
# To gather all tokens and then multiply them is one way to do it. Another is a ring: multiply your own tokens while
# those of the rank before you arrive, then these while the next ones arrive, and so on. Partial sums leave in the same
# way: compute your part of one rank's sum while the parts of others come in, add both, and send them on. The bytes are
# the same, but now they travel during the products (Wang et al. 2023). Here is an MLP of four ranks in forward, first
# its columns, then its rows:

# %%
mlp = Shape(layers=1, width=4096, heads=32, context=8192)


def forward(comm, region):
    there, h = region(comm, "ring"), mlp.width
    columns = ColumnParallelLinear("hidden", h, 4 * h, there, std=0.02, bias=False)
    rows = RowParallelLinear("thought", 4 * h, h, there, std=0.02, bias=False)
    for layer in (columns, rows):
        layer.w.data = phantom(layer.w.shape, np.float16)
    x = phantom((1, mlp.context // comm.size, h), np.float16)
    with comm.span("forward"):
        rows.forward(columns.forward(x)[0])


in_turn, overlapped = (sd.run(forward, 4, cluster=H100, args=(region,)) for region in (Sharded, Overlapped))
print(f"in turn    {in_turn.elapsed_s * 1e3:.2f} ms")
print(f"overlapped {overlapped.elapsed_s * 1e3:.2f} ms")
timeline(overlapped.trace)

# %% [markdown]
# Only what is longer than a product beside it, or comes last, takes time of its own. In the whole model, with
# attention, which sends nothing, and with backward:

# %%
print("tp 4               forward + backward")
for context in (2048, 8192):
    for name, options in (("in turn", {}), ("overlapped", {"tp_overlap": True})):
        seconds, *_ = measured(replace(wide, context=context), {"tp": 4}, sequence_parallel=True, **options)
        print(f"{context:6} tokens, {name:11}{seconds * 1e3:9.2f} ms")

# %% [markdown]
# A model of time cannot show one cost of it: several small products may be slower than one large one.
#
# ## Splitting the sequence
#
# Instead of the layers, you can split the sequence: give each of $p$ ranks $1/p$ of the *tokens*, from the first layer
# to the last. Most layers work on each token separately, so nothing changes for them. Attention is different: a query
# needs all keys before it, on whichever rank they are. There are two ways to bring them together.
#
# * **Ulysses** exchanges tokens for heads. Before attention, an all-to-all gives each rank all tokens of some of the
#   heads, so that it can compute ordinary attention for these heads. Afterwards, a second all-to-all gives each rank
#   all heads of its own tokens again.
# * In **ring attention** the queries stay where they are, and the keys and values of all ranks go round a ring, one
#   block at a time. A running softmax accumulates each query's result block by block, so no rank ever holds all keys.
#
# For $N$ tokens of width $h$, a rank sends $4\frac{Nh}{p}\frac{p-1}{p}$ numbers in Ulysses (the queries, keys, values
# and results of its tokens, except for its own heads), and $2\frac{Nh}{p}(p-1)$ in the ring (a block of keys and
# values, $p-1$ times).

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
# Both agree with attention on one rank, up to rounding. With more ranks, a rank sends less in Ulysses, but not in the
# ring, where all keys and values pass through every rank. But Ulysses needs at least as many heads as ranks, and only
# the ring overlaps its messages with computation, the work on the block that has already arrived.
#
# ## Zigzag
#
# In a GPT, a query attends only to its own token and to those *before* it. If each rank gets one consecutive part of
# the sequence, the first rank has the least to do, and all wait for the last. *Zigzag* cuts the sequence into $2p$
# parts instead, and gives each rank one from the front and one from the back. A bar is the work of one rank in forward
# and backward; its colours say whose keys the rank works on:

# %%
long = Shape(layers=1, width=4096, heads=32, context=32768)
by_split = {
    name: sd.run(lambda comm, kind=kind: backward(comm, long, {"sp": 4}, attention=kind), 4, cluster=H100)
    for name, kind in (("in order", "even-ring"), ("zigzag", "ring"))
}
attention_work({name: run.trace for name, run in by_split.items()})

# %%
for name, run in by_split.items():
    passes = [max(s.seconds for s in run.trace if s.name == ring) * 1e3 for ring in RINGS]
    print(f"{name:9} the slowest rank takes {passes[0]:4.1f} ms forward, {passes[1]:4.1f} ms backward")

# %% [markdown]
# The timeline shows two of the four ranks in forward, with zigzag. While a rank works on one block of keys, the next is
# in flight.

# %%
zigzag = by_split["zigzag"].trace
forward = next(s for s in zigzag if s.name == RINGS[0] and s.rank == 0)
timeline(zigzag, ranks=[0, 1], start_s=forward.start_s, end_s=forward.end_s, arrows=True)

# %% [markdown]
# Here are the messages of a rank in each pass, **measured** in the trace and **counted** in advance:

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
# ## How long can a sequence be?
#
# The memory for activations limits the length of a sequence. In the table, both the sequence and the number of ranks
# that share it double from each group of lines to the next:

# %%
print("   tokens   ranks      activations/rank        time")
for p in (1, 2, 4, 8):
    shape = Shape(layers=2, width=4096, heads=32, context=8192 * p, recompute="selective")
    for kind, flash in (("ulysses", False), ("ulysses", True), ("ring", False))[: 2 if p == 1 else 3]:
        seconds, _, activations = measured(replace(shape, flash=flash), {"sp": p}, attention=kind)
        name = (kind if p > 1 else "one rank") + (", flash" if flash else "")
        print(f"{shape.context:9,}{p:8}{activations / GIB:15.2f} GiB{seconds * 1e3:15.1f} ms   {name}")

# %% [markdown]
# With ring attention, a rank's memory stays the same. In plain Ulysses, each rank stores all scores of its heads, whose
# number grows with the square of the length; with FlashAttention (notebook 5) it never stores more than a tile of them.
# The time grows in all cases, because each query attends to more keys. It grows most where all scores are stored. Are
# messages the reason, arithmetic, or memory?


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
    print(f"{name:15} {here.flops / 1e12:5.1f} TFLOP take {computing * 1e3:5.1f} ms,", end=" ")
    print(f"{here.bytes / 1e9:5.0f} GB through memory take {moving * 1e3:5.1f} ms")

# %% [markdown]
# It is memory. Stored scores are written to the device's memory and read again, which takes longer than computing them.
# With FlashAttention, and in the ring, the scores of each tile are computed and used on the chip, so arithmetic limits
# the time.
#
# ## On real processes
#
# Here `columns_then_rows` runs on four processes under `mpirun`:

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
# Let the second layer also have a bias: $y = \text{relu}(xA)B + c$. What is wrong in the code below? Look at how the
# largest difference from the right answer depends on the number of ranks. (`RowParallelLinear` in
# [`linear.py`](../simdist/parallel/tensor/linear.py) does it right.)

# %%
c = np.ones(32)


def with_bias(comm):
    own = partition(A.shape[1], comm.size)[comm.rank]
    y = relu(x @ A[:, own]) @ B[own] + c
    all_reduce(y, comm, algorithm="ring")
    return y


for p in (1, 2, 4):
    print(f"on {p}: differs by {np.abs(sd.run(with_bias, ranks=p).results[0] - (whole + c)).max():.1f}")

# %% [markdown]
# ## To take along
#
# * A layer split by columns, followed by one split by rows, needs one all-reduce in forward and one in backward.
#   Attention is split in the same way, by heads.
# * Tensor parallelism sends messages in every layer, so use it where links are fastest. They overlap with products if
#   tokens are sent and multiplied in runs.
# * A sequence can be split, too. Ulysses exchanges tokens for heads; ring attention passes keys and values round, and a
#   zigzag balances its work.
#
# **Try:** Set `tp=3` in `places`, on three ranks: what does the error say? Use `"even-ring"` as a `kind` in the table
# of lengths. Set `tp=2, sp=2` in `places`: which ranks now hold the same weights, and why? Solve puzzles 20, 25 and 26.
#
# **Read:** [`simdist/parallel/tensor/linear.py`](../simdist/parallel/tensor/linear.py) and
# [`region.py`](../simdist/parallel/tensor/region.py) (Shoeybi et al. 2019, *Megatron-LM*, arXiv 1909.08053; Korthikanti
# et al. 2022, arXiv 2205.05198); [`overlapped.py`](../simdist/parallel/tensor/overlapped.py) (Wang et al. 2023,
# *Overlap Communication with Dependent Computation via Decomposition*, ASPLOS);
# [`simdist/parallel/sequence/`](../simdist/parallel/sequence/) (Jacobs et al. 2023, *DeepSpeed Ulysses*, arXiv
# 2309.14509; Liu, Zaharia, Abbeel 2023, *Ring attention*, arXiv 2310.01889).
#
# **Next:** [experts](07_experts.ipynb): many MLPs, of which each token uses only a few.
