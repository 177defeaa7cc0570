# %% [markdown]
# # 5. Where the memory goes
#
# A model of one and a half billion weights fits on a USB stick, but training it takes many times as much memory. What
# fills this memory, and which part of it can a rank do without?
#
# You need Python and NumPy, but no GPU: the large models have their true sizes, but consist of *phantom* arrays, which
# have a shape and a dtype but no contents. So eight virtual ranks can train GPT-2 XL on eight simulated H100s in this
# process, and every message and every allocation has the size that it has in a real run.

# %%
from functools import partial

import numpy as np

import simdist as sd
from simdist.arrays import CATEGORIES, Ledger, phantom, recorded
from simdist.cluster import Link, preset
from simdist.nn import Shape, gpt
from simdist.nn.memory import activations
from simdist.parallel import DataParallel, Offload, Recipe, ZeRO
from simdist.parallel.memory import memory_rows, replicated_memory
from simdist.parallel.precision import precision
from simdist.parallel.zero.formulas import kept, paper_bytes, paper_elements
from simdist.plots import memory, style, timeline_page
from simdist.plots.memory import COLOURS
from simdist.trace.memory import remember

GIB = 2**30
H100 = preset("h100")

# %% [markdown]
# ## Sixteen bytes per weight
#
# Large models are usually trained with Adam in *mixed precision*: forward and backward compute in 16 bits, and the
# update in 32. For each weight, a rank then keeps:

# %%
xl = Shape(layers=48, width=1600, heads=25, context=1024, vocabulary=50257)  # GPT-2 XL
weights = gpt(xl).parameters.size
per_weight = {"weight": 2, "gradient": 2, "master weight": 4, "Adam's m": 4, "Adam's v": 4}
for what, num_bytes in per_weight.items():
    print(f"{what:>14}  {num_bytes:2} bytes  {num_bytes * weights / GIB:6.2f} GiB")
total = sum(per_weight.values())
print(f"{'all':>14}  {total:2} bytes  {total * weights / GIB:6.2f} GiB for {weights:,} weights")

# %% [markdown]
# The weights themselves are an eighth of the total. The last three lines are the *optimizer state*, which the update
# keeps from step to step: the *master weight* is the weight in 32 bits, and $m$ and $v$ are running means of the
# gradient and of its square. All this memory is needed before the model has read a single token.
#
# ## The ledger
#
# A *ledger* records how much memory is in use, and for what. Code that allocates a lasting array reports it to the
# ledger, which subtracts the array when it is freed. Below, one rank trains on two texts (sequences) of 1,024 tokens,
# with a ledger that reads the rank's clock:

# %%
adam = Recipe("adamw", precision=precision("bf16"))


def train(comm, shape, zero_stage=0, sequences=2, steps=1, recipe=adam, offload=None, shards=0):
    """Train a model of phantom arrays; returns the ledger of the last step."""
    ledger = Ledger(comm.clock)
    tokens = phantom((sequences, shape.context + 1), np.uint8)
    with recorded(ledger):
        if zero_stage:
            method = ZeRO(gpt(shape), comm, recipe, 0, zero_stage, offload=offload, shards=shards, memory=phantom)
        else:
            method = DataParallel(gpt(shape), comm, recipe, 0, bucket_bytes=1 << 20, memory=phantom)
        comm.barrier()
        for _ in range(steps):
            ledger.begin()
            with comm.span("step"):
                method.train([tokens], scale=1.0, learning_rate=1e-3)
    remember(ledger.moments, comm.recorder)  # for the timeline
    return ledger


TEXTS = 2
alone = sd.run(train, ranks=1, cluster=H100, args=(xl, 0, TEXTS)).results[0]
memory(alone.moments)

# %% [markdown]
# The rising slope is forward, in which each layer keeps the *activations* that its backward will need. The falling
# slope is backward, which frees them in the opposite order. The peak is where forward ends and backward begins.
#
# All of this can be predicted. **Measured** is the ledger's record, **predicted** is computed from the model's shape
# before anything runs, and the last column is what the **papers** count:

# %%
promised = replicated_memory(weights, adam, xl, sequences=TEXTS)
print(f"{'':16}{'measured':>12}{'predicted':>12}{'papers':>12}  GiB")
for category, measured, predicted, paper in memory_rows(alone, promised):
    others = "".join(f"{'-' if n is None else f'{n / GIB:.3f}':>12}" for n in (predicted, paper))
    print(f"{category:16}{measured / GIB:12.3f}{others}")
    assert predicted is None or predicted == measured

# %% [markdown]
# *Buffers* are the arrays passed from one layer to the next. The papers count more activations than this code keeps.
# The cell prints the largest differences in a block, and the reason for each:

# %%
for entry in activations(xl, sequences=TEXTS):
    if abs(entry.paper_bytes - entry.num_bytes) * entry.blocks > 0.5 * GIB:
        sizes = f"{style.size(entry.num_bytes):>9} here, {style.size(entry.paper_bytes):>9} in the paper"
        print(f"{entry.layer:12} {entry.what:22} {sizes}: {entry.why}")

# %% [markdown]
# ## Why should every rank keep a copy?
#
# In data parallelism every rank keeps all 16 bytes per weight, although after each step all ranks hold the same
# weights, the same master weights, the same $m$ and the same $v$. *ZeRO*, the zero redundancy optimizer, lets each of
# $p$ ranks keep only $1/p$ (a *shard*) of these. It does so in three stages, each of which shards more:
#
# * **stage 1**: the optimizer state. Each rank updates its shard of the weights, and an all-gather gives the updated
#   weights to all;
# * **stage 2**: also the gradients. A rank receives only the sums of gradients for the weights that it will update;
# * **stage 3**: also the weights. A layer is gathered just before it is used, and freed afterwards.

# %%
runs = {stage: sd.run(train, ranks=8, cluster=H100, args=(xl, stage)) for stage in range(4)}
peaks = {stage: run.results[0].peaks for stage, run in runs.items()}
kinds = ("parameters", "gradients", "optimizer state")

print("GiB/rank, 8 ranks       measured   predicted     paper")
for stage in runs:
    exact = kept(gpt(xl), adam, 8, stage)
    found = [
        sum(peaks[stage][kind] for kind in kinds),
        exact.total - exact.communication,
        paper_bytes(weights, 8, stage),
    ]
    print(f"stage {stage}              " + "".join(f"{n / GIB:12.3f}" for n in found))
    assert found[0] == found[1] and abs(found[0] / found[2] - 1) < 0.01

# %%
with style.styled():
    fig = style.figure(style.PAGE, 2.5)
    ax = fig.subplots()
    for stage, run in runs.items():
        left, peak = 0.0, run.results[0].peak
        for category in CATEGORIES:
            num = peak.of(category) / GIB
            ax.barh(stage, num, left=left, color=COLOURS[category], label=category if stage == 0 else None)
            left += num
        ax.text(left, stage, f" {left:.1f}", va="center")
    ax.set_yticks(range(4), ["data parallel", "ZeRO 1", "ZeRO 2", "ZeRO 3"])
    ax.set(xlabel="memory of one rank at its peak (GiB)")
    ax.invert_yaxis()
    at_rest = [sum(peaks[stage][kind] for kind in kinds) for stage in (0, 3)]
    style.legend(fig, ax.get_legend_handles_labels()[0])
    style.title(
        fig,
        f"ZeRO 3 on 8 ranks keeps 1/{at_rest[0] / at_rest[1]:.0f} of weights, gradients and state, and all activations",
    )
fig

# %% [markdown]
# Most of what remains is activations. They belong to a rank's own texts, and no other rank holds them, so ZeRO finds no
# redundancy in them.
#
# ## What it costs
#
# Stages 1 and 2 replace the all-reduce of gradients by a reduce-scatter of gradients and an all-gather of weights.
# These are the two halves of an all-reduce (notebook 1), so ranks send as many bytes as before. Stage 3 gathers the
# weights once more, for backward.

# %%
print("                elements sent per rank and weight      time of a step")
print("                     measured     formula")
times = []
for stage, run in runs.items():
    step = next(s for s in run.trace if s.name == "step" and s.rank == 0)
    sends = [s for s in run.trace.sends(0) if s.start_s >= step.start_s]
    measured, paper = sum(s.bytes for s in sends) / 2 / weights, paper_elements(weights, 8, stage) / weights
    took_s = max(s.end_s for s in run.trace) - step.start_s
    print(f"stage {stage}       {measured:14.3f}{paper:12.3f}{took_s * 1e3:18.1f} ms")
    assert abs(measured / paper - 1) < 0.01
    times.append(took_s)
assert times[3] <= times[0]

# %% [markdown]
# Stage 3 sends more, yet its step takes no longer than that of data parallelism: most of its communication overlaps
# with computation, and each rank updates only an eighth of the weights.
#
# The next two cells show this overlap, for a smaller model on 4 ranks in stage 3. In Jupyter, the first shows an
# interactive page, with each rank's memory under its two streams: the **wheel** zooms, **dragging** moves, and a
# **click** on a collective draws its messages. (`simdist plot trace.json --html` makes such a page of any recorded
# run.) The second draws a static picture.

# %%
small = Shape(layers=3, width=1024, heads=16, context=512)
small_run = sd.run(train, ranks=4, cluster=H100, args=(small, 3))
first = next(s for s in small_run.trace if s.name == "step")
timeline_page(small_run.trace, ranks=[0, 1], start_s=first.start_s)

# %%
small_run.trace.plot(ranks=[0, 1], start_s=first.start_s)

# %% [markdown]
# While one layer computes, the weights of the next are gathered. A gathered layer is needed only briefly; the ledger
# counts it as *communication*.
#
# ## Several nodes: which ranks share?
#
# That works well on one node. On several nodes, stage 3 gathers every layer over the network. In *hybrid sharding*, the
# ranks of each node share one replica of the model. Weights are then gathered inside the node, and only the sums of
# gradients go between nodes, once per step. That takes more memory; how much time it saves depends on the network. The
# table is for four nodes of eight H100s, once with a network card of 400 Gb/s for each GPU, and once with a single card
# of 100 Gb/s for all eight.

# %%
big = Shape(layers=24, width=2048, heads=16, context=2048, vocabulary=50257)
count = gpt(big).parameters.size
networks = H100, H100.with_(nics_per_node=1, between=Link(5e-6, 12.5e9))
print("                     GiB of weights,    sent to other nodes,           time of a step")
print("                   gradients, state   elements/weight     eight fast cards, one slow one")
slow_s = {}
for shards, name in {32: "all 32 share one", 8: "each node has one", 1: "each rank has one"}.items():
    program = partial(train, shards=shards)
    both = [sd.run(program, ranks=32, cluster=network, args=(big, 3)) for network in networks]
    begun = [next(s for s in run.trace if s.name == "step" and s.rank == 0).start_s for run in both]
    sends = [s for rank in range(8) for s in both[0].trace.sends(rank) if s.start_s >= begun[0]]
    far, near = (sum(s.bytes for s in sends if (s.peer < 8) == inside) / 8 / 2 / count for inside in (False, True))
    held = sum(both[0].results[0].peaks[kind] for kind in kinds)
    took_s = [max(s.end_s for s in run.trace) - start_s for run, start_s in zip(both, begun, strict=True)]
    slow_s[shards] = took_s[1]
    print(f"{name:20}{held / GIB:15.2f}{far:20.3f}{took_s[0] * 1e3:15.1f} ms{took_s[1] * 1e3:13.1f} ms")
    assert abs((near + far) / paper_elements(1, 32, 3, shards) - 1) < 0.01
assert slow_s[8] < min(slow_s[32], slow_s[1])

# %% [markdown]
# With fast cards, hybrid sharding (*each node has one*) saves no time: it only takes more memory, and each rank has
# more weights to update. With the slow card it is the fastest.
#
# ## Is it still the same training?
#
# Now with real arrays: a small GPT learns random bytes on 4 ranks for five steps in float64, with data parallelism and
# with each stage. Do the weights agree?


# %%
def learn(comm, zero_stage):
    model = gpt(Shape(layers=2, width=16, heads=2, context=8))
    exact = Recipe("adamw", precision=precision("float64"))
    if zero_stage:
        method = ZeRO(model, comm, exact, 0, zero_stage)
    else:
        method = DataParallel(model, comm, exact, 0)
    random = np.random.default_rng(comm.rank)
    for _ in range(5):
        method.train([random.integers(256, size=(4, 9), dtype=np.uint8)], 1 / (4 * 8 * comm.size), 0.01)
    held = np.zeros(model.parameters.size)
    for start, part in method.vectors()[""]:
        held[start : start + len(part)] = part
    return held


whole = sd.run(learn, ranks=4, args=(0,)).results[0]
for stage in (1, 2, 3):
    parts = sd.run(learn, ranks=4, args=(stage,)).results
    print(f"stage {stage}: largest difference of a weight {np.abs(sum(parts) - whole).max():.1e}")
    assert np.allclose(sum(parts), whole, rtol=0, atol=1e-12)

# %% [markdown]
# Each rank returned its shard, with zeros elsewhere. The shards add up to the weights of data parallelism.
#
# ## Activations: recompute them
#
# A rank need not keep all activations until backward: it can compute some of them again. *Selective* recomputation
# discards what attention computes from its queries, keys and values, which takes much memory but little work. *Full*
# recomputation keeps only the input of each block, and runs the block's forward a second time. *FlashAttention* never
# stores the whole matrix of scores: it computes one tile of it at a time, uses it and discards it, and backward
# computes it again.

# %%
ways = {}
for way in ("none", "selective", "flash", "full"):
    how = {"flash": True} if way == "flash" else {"recompute": way}
    shape = Shape(layers=24, width=2048, heads=16, context=2048, vocabulary=50257, **how)
    run = sd.run(train, ranks=1, cluster=H100, args=(shape,))
    step = next(s for s in run.trace if s.name == "step")
    predicted = replicated_memory(1, adam, shape, sequences=2)["activations"].num_bytes
    ways[way] = run.results[0].peaks["activations"], predicted, step.seconds
print("                activations, GiB           time of a step")
print("             measured   predicted")
for way, (measured, predicted, seconds) in ways.items():
    print(f"{way:10}{measured / GIB:11.2f}{predicted / GIB:12.2f}{seconds * 1e3:16.1f} ms")
    assert measured == predicted

# %%
with style.styled():
    fig = style.figure(style.PAGE, 2.2)
    left, right = fig.subplots(1, 2, sharey=True)
    left.barh(list(ways), [measured / GIB for measured, *_ in ways.values()], color=COLOURS["activations"])
    right.barh(list(ways), [seconds * 1e3 for *_, seconds in ways.values()], color=style.colour("compute"))
    left.set(xlabel="activations at their peak (GiB)")
    right.set(xlabel="time of a step (ms)")
    left.invert_yaxis()
    saved, slower = 1 - ways["full"][0] / ways["none"][0], ways["full"][2] / ways["none"][2] - 1
    style.title(fig, f"Full recomputation saves {saved:.0%} of the activations for {slower:.0%} more time")
fig

# %% [markdown]
# Full recomputation saves the most memory, and takes the most time. FlashAttention saves as much memory as selective
# recomputation, and it also saves time: it does more arithmetic than without recomputation, but its scores never go
# through the device's memory, which is slow in comparison.
#
# ## Offload: memory that is not on the device
#
# The computer that a GPU is plugged into, its *host*, has memory, too. You can keep the optimizer state there, and run
# the update there. Then the gradients go over the PCIe link to the host, and the new weights come back: 2 bytes each
# way for every weight of the rank's shard. This saves memory on the device and costs time:

# %%
print("GPT-2 XL, ZeRO 2, 8 ranks           GiB on the device    time of a step")
for name, what in {"all on the device": (), "optimizer state on the host": ("optimizer",)}.items():
    run = sd.run(train, ranks=8, cluster=H100, args=(xl, 2, 2, 1, adam, Offload(what)))
    step = next(s for s in run.trace if s.name == "step" and s.rank == 0)
    moved = sum(
        s.bytes for s in run.trace if s.rank == 0 and s.name.startswith("offload") and s.start_s >= step.start_s
    )
    took_s = max(s.end_s for s in run.trace) - step.start_s
    print(f"{name:34}{run.results[0].peak.total / GIB:19.1f}{took_s * 1e3:15.1f} ms, {moved / GIB:.2f} GiB moved")

# %% [markdown]
# ## Fewer bytes per number
#
# Why not keep everything in 16 bits? An update adds a small number to a large one, and bfloat16 has only 8 significant
# bits for the sum:

# %%
w, update = 1.0, 1e-3
for name in ("float32", "bf16"):
    x = np.array(w, precision(name).dtype)
    for _ in range(100):
        x = (x + np.array(update, x.dtype)).astype(x.dtype)
    print(f"1 + 100 x 0.001 in {name:8} = {float(x):.4f}")

# %% [markdown]
# In bf16 the sum has not changed, because each update is smaller than half of the last bit. That is what the 32-bit
# master weights are for, and why mixed precision halves activations and messages, but saves none of the 16 bytes per
# weight:

# %%
for name, optimizer in (("float32", "adamw"), ("bf16", "adamw"), ("bf16", "adamw8bit")):
    rule = Recipe(optimizer, precision=precision(name))
    found = replicated_memory(weights, rule, xl, sequences=2)
    of_weights = sum(found[kind].num_bytes for kind in kinds) / weights
    kept_bytes = found["activations"].num_bytes
    print(f"{name:8} {optimizer:10} {of_weights:5.2f} bytes per weight, {kept_bytes / GIB:5.2f} GiB of activations")

# %% [markdown]
# The optimizer in the last line keeps $m$ and $v$ in 8 bits each, with a common scale for each block of 2,048 numbers.
#
# ## Does it fit?
#
# Because memory can be predicted, you can compute whether a model fits before you run it. For models of the sizes of
# the GPT-3 family, the table shows the lowest ZeRO stage that fits into 80 GB, with one text per rank and full
# recomputation. (Stage 0 is plain data parallelism.)

# %%
family = {
    "1.3 B": (24, 2048, 16),
    "2.7 B": (32, 2560, 32),
    "6.7 B": (32, 4096, 32),
    "13 B": (40, 5120, 40),
    "175 B": (96, 12288, 96),
}
print("ranks      " + "".join(f"{p:>8}" for p in (8, 64, 512)))
for name, (layers, width, heads) in family.items():
    shape = Shape(layers, width, heads, context=2048, vocabulary=50257, recompute="full")
    n = 12 * layers * width**2 + (50257 + 2048) * width  # the matrices, nearly all weights
    room = H100.device.memory_bytes - replicated_memory(1, adam, shape, sequences=1)["activations"].num_bytes
    cells = []
    for p in (8, 64, 512):
        fits = [stage for stage in range(4) if paper_bytes(n, p, stage) < room]
        cells.append(f"stage {fits[0]}" if fits else "no")
    print(f"{name:11}" + "".join(f"{cell:>8}" for cell in cells))

# %% [markdown]
# Where the table says *no*, no stage of ZeRO is enough. The next notebooks split the layers themselves.
#
# ## To take along
#
# * Adam in mixed precision keeps 16 bytes per weight; only 2 of them are the weight itself.
# * ZeRO shards what every rank would otherwise hold: stage 1 the optimizer state, stage 2 also the gradients, stage 3
#   also the weights. Stages 1 and 2 send no more than data parallelism, stage 3 sends 1.5 times as much, and all train
#   to the same weights. Hybrid sharding keeps most of this traffic inside nodes.
# * Activations belong to a rank's own texts, so sharding over data parallel ranks does not reduce them. Recomputation
#   trades them for time.
#
# **Try:** Set `TEXTS = 8` in the first run: which category grows? Which stage would you choose for the 1.3 B model on 8
# ranks with 16 texts each? And without recomputation (`recompute="none"`)? Draw `memory(runs[3].results[0].moments)`:
# how does the memory of stage 3 rise and fall? Solve puzzles 18 and 19.
#
# **Read:** [`simdist/parallel/zero/zero.py`](../simdist/parallel/zero/zero.py) (Rajbhandari, Rasley, Ruwase, He 2020,
# *ZeRO*, arXiv 1910.02054); [`simdist/nn/memory.py`](../simdist/nn/memory.py) (Korthikanti et al. 2022, *Reducing
# activation recomputation*, arXiv 2205.05198);
# [`simdist/nn/functional/flash.py`](../simdist/nn/functional/flash.py) (Dao et al. 2022, *FlashAttention*, arXiv
# 2205.14135);
# [`simdist/parallel/zero/offload.py`](../simdist/parallel/zero/offload.py) (Ren et al. 2021, *ZeRO-Offload*, arXiv
# 2101.06840); [`simdist/arrays/ledger.py`](../simdist/arrays/ledger.py).
#
# **Next:** [tensor and sequence parallel](06_tensor_and_sequence.ipynb): how to split a layer, and how to split its
# input.
