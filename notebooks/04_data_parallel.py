# %% [markdown]
# # 4. Data parallel
#
# The simplest way to use many devices is to give each of them a copy (*replica*) of the whole model and a share of the
# batch, and then to sum all their gradients. When does this sum cost time, and when is it free?
#
# You do not need a GPU: the clusters are simulated, and the larger models have their true sizes but no data. If MPI is
# installed, the last program also runs on real processes.

# %%
import ipywidgets
import numpy as np
from IPython.display import display

import simdist as sd
from simdist.arrays import phantom
from simdist.cluster import Link, preset
from simdist.data import PYTHON, Batches, load
from simdist.nn import Shape, gpt, mlp
from simdist.optim import Schedule, scaled_learning_rate
from simdist.parallel import DataParallel, Recipe
from simdist.parallel.precision import precision
from simdist.plots import style, timeline
from simdist.trace.statistics import hidden_share

# %% [markdown]
# ## The same as on one device
#
# The gradient of a mean over a batch is the mean of the gradients of its equal parts. So p ranks with one part each
# make the same step as one rank with the whole batch, up to rounding. The cell trains with 64-bit numbers, and prints
# how far the weights differ:

# %%
text, _ = load(PYTHON).split(length=17, validation_share=0.1, seed=0)
exact = Recipe("sgd", momentum=0.9, precision=precision("float64"))


def network():
    return mlp(context_bytes=16, embedding_width=8, hidden_width=32, hidden_layers=1)


def trained(comm, steps=10, global_batch_size=50):
    """The weights after a few steps, each on a batch of 50 examples, split as evenly as possible over the ranks."""
    learner = DataParallel(network(), comm, exact, seed=0)
    batches = Batches(text, global_batch_size, seed=0)
    scale = 1 / (global_batch_size * learner.model.targets_per_window)
    for step in range(steps):
        learner.train([batches.part(step, comm.rank, comm.size).windows], scale, learning_rate=0.1)
    return learner.weights.copy()


alone = sd.run(trained, ranks=1).results[0]
for p in (2, 3, 4, 8):
    results = sd.run(trained, ranks=p).results
    assert all(np.array_equal(w, results[0]) for w in results)
    print(f"{p} ranks: bit-identical; at most {np.abs(results[0] - alone).max():.0e} from the weights of one rank")
    assert np.abs(results[0] - alone).max() < 1e-12

# %% [markdown]
# 50 examples cannot be divided evenly over 3, 4 or 8 ranks. The result is still right, because `scale` gives every
# example the same weight on whichever rank it is.
#
# ## What a step waits for
#
# Now the model is the smallest GPT-2, in 16 bits, on two nodes of eight H100s each. In every step, each rank reads four
# texts (sequences) of 1,024 tokens. Begin with the simplest way: *forward* computes the loss, *backward* the gradient,
# and then one all-reduce sums the whole gradient.

# %%
H100 = preset("h100")
small = Shape(layers=12, width=768, heads=12, context=1024, vocabulary=50257)
adam = Recipe("adamw", precision=precision("bf16"))
MIB = 2**20


def step(comm, bucket_bytes=None, texts=4, micro_batches=1, shape=small):
    """One step of data parallel training; returns when it began and how long it took."""
    learner = DataParallel(gpt(shape), comm, adam, 0, bucket_bytes=bucket_bytes, memory=phantom)
    tokens = phantom((texts // micro_batches, shape.context + 1), np.uint8)
    comm.barrier()
    start_s = comm.clock()
    learner.train([tokens] * micro_batches, scale=1.0, learning_rate=1e-3)
    return start_s, comm.clock() - start_s


def on(ranks, cluster=H100, **options):
    """The run of a step, and when the step begins and how long it takes on the slowest rank."""
    run = sd.run(lambda comm: step(comm, **options), ranks, cluster=cluster, check=False)
    start_s = run.results[0][0] + 1e-7  # just after the barrier
    return run, start_s, max(took_s for _, took_s in run.results)


run, start_s, plain_s = on(16)
gradient_bytes = 2 * gpt(small).parameters.size
print(f"{gradient_bytes / MIB:.0f} MiB of gradient; a step takes {plain_s * 1e3:.2f} ms")
timeline(run.trace, ranks=(0, 1, 8), start_s=start_s)

# %% [markdown]
# The all-reduce adds its whole time to the step, and meanwhile the devices compute nothing.
#
# ## Buckets
#
# Backward goes through the layers from last to first, so the last layer's gradient is complete long before the first
# layer's. *DDP*, PyTorch's data parallelism, puts gradients into *buckets* as they become complete. While backward goes
# on, it all-reduces each full bucket on a second *stream*, a queue of work that runs beside the first.

# %%
run, start_s, bucket_s = on(16, bucket_bytes=MIB)
hidden = hidden_share(run.trace, rank=0)
print(f"a step takes {bucket_s * 1e3:.2f} ms, {1 - bucket_s / plain_s:.0%} less")
print(f"{hidden:.0%} of the second stream's communication overlaps with computation")
timeline(run.trace, ranks=(0, 1, 8), start_s=start_s)

# %% [markdown]
# The second row of each rank is its second stream. The last two buckets hardly overlap: they hold the gradients of the
# first block and of the embedding, which are complete only when backward ends. The embedding is by far the largest
# parameter:

# %%
model = gpt(small)
largest = sorted(model.parameters, key=lambda p: -p.size)[:3]
for p in largest:
    print(f"{p.name:22} {2 * p.size / MIB:6.1f} MiB")

# %% [markdown]
# **How large should a bucket be?** Large buckets start late; one that holds the whole gradient does not overlap at all.
# Small buckets cost the latency of an all-reduce more often. But a bucket is sent only when a whole layer is complete,
# so below the size of a layer nothing changes:

# %%
sizes = [MIB, 8 * MIB, 32 * MIB, 64 * MIB, 128 * MIB]
far = H100.with_(between=Link(latency_s=5e-4, bytes_per_s=H100.between.bytes_per_s))
cases = {"1 text per rank": (H100, 1), "4 texts": (H100, 4), "4 texts, 0.5 ms between the nodes": (far, 4)}
with style.styled():
    fig = style.figure(style.PAGE, 2.4)
    ax = fig.subplots()
    best, worst = [], []
    for i, (name, (cluster, texts)) in enumerate(cases.items()):
        without_s = on(16, cluster, texts=texts)[2]
        share = [on(16, cluster, texts=texts, bucket_bytes=b)[2] / without_s for b in sizes]
        ax.plot(sizes, share, label=name, **style.series(i))
        best.append(1 - min(share))
        worst.append(max(share) - 1)
    ax.axhline(1, color=style.INK, linewidth=0.6)
    ax.set(xscale="log", xlabel="bucket size", ylabel="step time / without buckets")
    ax.set_xticks(sizes, [style.size(b) for b in sizes])
    ax.minorticks_off()
    ax.legend()
    words = f"Buckets of the best size save {min(best):.0%} to {max(best):.0%} of a step"
    style.title(fig, f"{words}; of the worst size they add up to {max(worst):.0%}")
fig

# %% [markdown]
# Where a message between the nodes takes 0.5 ms, small buckets make the step longer than it is without any. With the
# slider, watch how the second stream changes:


# %%
def with_buckets(log2_mib):
    run, start_s, _ = on(16, bucket_bytes=int(MIB * 2.0**log2_mib))
    display(timeline(run.trace, ranks=(0, 8), start_s=start_s, width=5.0))


ipywidgets.interactive(with_buckets, log2_mib=(-4, 8))

# %% [markdown]
# ## Accumulate
#
# If a batch does not fit in memory, split it into *micro-batches*, add up their gradients, and all-reduce only after
# the last one. A batch of any size then sends the same bytes, so the larger the batch, the less communication matters.

# %%
print("  texts/rank   micro-batches   step, ms     ms/text     MiB sent/text")
for texts in (1, 2, 4, 8):
    run, start_s, took_s = on(16, bucket_bytes=MIB, texts=texts, micro_batches=texts)
    sent = sum(s.bytes for s in run.trace.sends(0) if s.start_s >= start_s) / MIB
    print(f"{texts:12} {texts:15} {took_s * 1e3:10.2f} {took_s * 1e3 / texts:11.2f} {sent / texts:17.0f}")

# %% [markdown]
# ## More ranks
#
# With twice the ranks and twice the batch, a step ideally takes as long as before; this is called *weak scaling*. How
# much is lost to communication? Here each rank has 16 texts of 256 tokens:

# %%
counts = [1, 2, 4, 8, 16, 32]
short = Shape(layers=12, width=768, heads=12, context=256, vocabulary=50257)
scaling = {}
for name, bucket in (("all-reduce after backward", None), ("buckets of 16 MiB", 16 * MIB)):
    scaling[name] = [on(p, bucket_bytes=bucket, texts=16, shape=short)[2] for p in counts]
with style.styled():
    fig = style.figure(style.PAGE, 2.4)
    ax = fig.subplots()
    for i, (name, took_s) in enumerate(scaling.items()):
        ax.plot(counts, [took_s[0] / s for s in took_s], label=name, **style.series(i))
    ax.axvspan(11, counts[-1], color="#EEEEEE", linewidth=0, zorder=0)
    ax.text(11.5, 0.05, "several nodes", fontsize=6.5)
    ax.set(xscale="log", ylim=(0, 1.05), xlabel="ranks", ylabel="efficiency: step time on 1 / on p")
    ax.set_xticks(counts, map(str, counts))
    ax.minorticks_off()
    ax.legend(loc="lower left")
    last = [took_s[0] / took_s[-1] for took_s in scaling.values()]
    style.title(fig, f"On {counts[-1]} ranks the efficiency is {last[1]:.0%} with buckets, {last[0]:.0%} without")
fig

# %% [markdown]
# ## Large batches
#
# Data parallelism on many ranks means large batches, and a larger batch is useful only if the model learns more from
# it. With k times the batch, one step has to replace k, so the *linear scaling rule* multiplies the learning rate by k.
# At the beginning that is too much; a *warm-up* raises the rate over the first steps (Goyal et al. 2017).
#
# The cell compares both with the unchanged rate, on the same number of examples. One rank computes the whole batch: as
# shown above, the number of ranks does not change the result.

# %%
EXAMPLES = 20_480
BASE, BASE_RATE = 32, 0.03


def learn(comm, batch_size, rate):
    learner = DataParallel(network(), comm, Recipe("sgd", momentum=0.9), seed=0)
    batches = Batches(text, batch_size, seed=0)
    steps = EXAMPLES // batch_size
    losses = []
    for k in range(steps):
        windows = batches.part(k, 0, 1).windows
        losses.append(learner.train([windows], 1 / batch_size, rate(k, steps)) / batch_size)
    return float(np.mean(losses[-max(1, steps // 8) :]))


def fixed(k, steps):
    return BASE_RATE


print("batch   steps        base rate   rate times k  with a warm-up   (loss over the last eighth)")
for batch_size in (32, 128, 512, 1024):
    peak = scaled_learning_rate(batch_size, BASE_RATE, BASE)
    steps = EXAMPLES // batch_size
    warm = Schedule(peak, steps, "constant", warmup_steps=steps // 4, start=min(peak, BASE_RATE))
    with np.errstate(all="ignore"):
        losses = [sd.run(learn, 1, args=(batch_size, rate)).results[0] for rate in
                  (fixed, lambda k, n, peak=peak: peak, lambda k, n, warm=warm: warm(k))]  # fmt: skip
    print(f"{batch_size:5} {steps:7} {losses[0]:16.3f} {losses[1]:14.3f} {losses[2]:15.3f}")

# %% [markdown]
# Read a row from left to right: for every batch larger than the first, the rule lowers the loss. A warm-up costs a
# little at moderate rates, and helps at the highest. Read a column from top to bottom: with the rule, a larger batch
# does no harm at first, but then the loss rises. From there on more ranks gain little, however fast the network: this
# is the limit of data parallelism.
#
# ## On real processes
#
# Here `trained`, from the beginning of this notebook, runs on four processes. They add in the same order as the virtual
# ranks, so the weights are not just close but bit-identical.

# %%
try:
    real = sd.run(trained, ranks=4, world="mpi")
except sd.WorldUnavailable as missing:
    print(f"Passed over: {missing}")
else:
    virtual = sd.run(trained, ranks=4)
    same = all(np.array_equal(a, b) for a, b in zip(virtual.results, real.results, strict=True))
    print(
        f"{len(real.results)} processes, {real.results[0].size:,} weights each; bit-identical to virtual ranks: {same}"
    )

# %% [markdown]
# ## To take along
#
# * Data parallel training gives the same weights as training on one rank, up to rounding. Check that yours does.
# * A step all-reduces the gradient once, however large the batch. To make this cost small, give each rank more
#   examples, accumulate, and use buckets.
# * Buckets overlap communication with backward, except for the last ones. Their size is a compromise: small ones
#   overlap more, large ones cost fewer latencies.
# * In the end, the number of useful ranks is limited by the largest batch from which the model still learns more.
#
# **Try:** Use `preset("v100")`, whose network is slower. Pass `algorithm="ring"` to `DataParallel`. Use `bucket_bytes`
# in `trained`, on real processes. Solve puzzles 4 and 14 to 17.
#
# **Read:** [`parallel/data_parallel.py`](../simdist/parallel/data_parallel.py),
# [`parallel/buckets.py`](../simdist/parallel/buckets.py), [`optim/schedule.py`](../simdist/optim/schedule.py). Li et
# al. 2020, *PyTorch Distributed*, arXiv 2006.15704; Goyal et al. 2017, *Accurate, large minibatch SGD*, arXiv
# 1706.02677.
#
# **Next:** [where the memory goes](05_memory.ipynb): all ranks hold the same weights. Do they have to?
