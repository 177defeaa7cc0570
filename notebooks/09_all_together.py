# %% [markdown]
# # 9. All together
#
# Data, tensor, sequence, expert and pipeline parallelism each split something different, and send something different.
# A *mesh* combines them: it is a grid of ranks with one axis for each. Given a model and a cluster, which mesh is
# fastest, and what limits it?
#
# You need Python and NumPy, and the notebooks before this one. The first meshes are executed on eight virtual ranks,
# with phantom arrays of true size. Later ones are only predicted.

# %%
from dataclasses import replace

import numpy as np

import simdist as sd
from simdist.arrays import Ledger, phantom, recorded
from simdist.cluster import Link, preset
from simdist.comm import Mesh
from simdist.nn import Shape, gpt, published
from simdist.nn.formulas import model_flops, num_active_parameters, num_parameters
from simdist.parallel import DataParallel, Recipe, ZeRO
from simdist.parallel.parts import MeshParts
from simdist.parallel.pipeline import Pipeline, modelled_costs, schedule
from simdist.parallel.precision import precision
from simdist.parallel.zero.formulas import paper_bytes
from simdist.planning import Workbench, overview, planned, search
from simdist.plots import plan_bars, style, timeline
from simdist.training import Config
from simdist.training.models import shape as shape_of

GIB = 2**30

# %% [markdown]
# ## A model and a cluster
#
# The model is a GPT of eight wide blocks, with about as many weights as GPT-3 6.7B. The cluster has two nodes of four
# H100s each, with NVLink inside the nodes and InfiniBand between them. A batch is eight texts (sequences) of 2,048
# tokens.

# %%
cluster = preset("h100").with_(devices_per_node=4)
shape = Shape(layers=8, width=8192, heads=64, context=2048, vocabulary=51200)
adam = Recipe("adamw", precision=precision("bf16"))
RANKS, BATCH = 8, 8

weights = gpt(shape).parameters.size
costs = [c.total for c in modelled_costs(gpt(shape), 1, shape.context + 1, cluster.device, adam.precision.dtype)]
ideal_s = BATCH * sum(costs) / RANKS
print(f"{weights:,} weights: {16 * weights / GIB:.0f} GiB at 16 bytes each")
print(f"a device has {cluster.device.memory_bytes / GIB:.0f} GiB")
print(f"ideal: forward and backward split evenly, messages free: {ideal_s * 1e3:.0f} ms")

# %% [markdown]
# The whole model does not fit on one device, which rules out plain data parallelism. A mesh has these axes:
#
# | axis | what it splits | what it sends | when |
# |---|---|---|---|
# | `dp` | the batch; with ZeRO state, gradients, weights | gradients, weights | once per step, overlapping backward |
# | `tp` | each layer, and the tokens between layers | activations | four times per block, overlapped if in runs |
# | `pp` | between layers | activations between stages | once per micro-batch and stage; bubbles |
# | `sp` | each text (sequence) | keys and values, or heads | in each block |
# | `ep` | the experts | tokens | four times per block |
#
# ## What each axis sends
#
# First, `dp`, `tp` and `pp` are each used alone, on the four devices of one node. The table compares the bytes that
# rank 0 sends in a step, measured in the trace, with the formula. (Weights and activations have 2 bytes each.)


# %%
def method_of(comm, sizes, zero=0, order="1f1b"):
    """The model on a mesh; and each rank's number of micro-batches, of one text each."""
    mesh = Mesh(comm, **sizes)
    parts = MeshParts(mesh, sequence_parallel=True)
    model, count = gpt(shape, parts), BATCH // mesh.sizes["dp"]
    more = {"spread": parts.spread(), "memory": phantom}
    if mesh.pp.size > 1:
        rows = schedule(order, stages=mesh.pp.size, micro_batches=count)
        return Pipeline(model, mesh, adam, 0, rows, costs=costs, zero_stage=zero, **more), count
    if zero:
        return ZeRO(model, mesh.dp, adam, 0, zero, bucket_bytes=1 << 26, **more), count
    return DataParallel(model, mesh.dp, adam, 0, bucket_bytes=1 << 26, **more), count


def step(comm, *how):
    """One step; returns the peak bytes of this rank."""
    ledger = Ledger(comm.clock)
    with recorded(ledger):
        method, count = method_of(comm, *how)
        comm.barrier()
        with comm.span("step"):
            method.train([phantom((1, shape.context + 1), np.uint8)] * count, scale=1.0, learning_rate=1e-4)
    return ledger.peak.total


alone = {}
print("            sent by rank 0, GB")
print("          measured     formula")
activation = shape.context * shape.width  # items of a text between two blocks
passes = 14 if shape.recompute == "full" else 10  # all-gathers and reduce-scatters in a block
for axis in ("dp", "tp", "pp"):
    alone[axis] = run = sd.run(step, ranks=4, cluster=cluster, args=({axis: 4},))
    begin_s = next(s.start_s for s in run.trace if s.name == "step")
    sent = sum(s.bytes for s in run.trace.sends(0) if s.start_s >= begin_s)
    formula = {
        "dp": 2 * 2 * weights * 3 / 4,
        "tp": 2 * BATCH * (passes * shape.layers + 5) * activation * 3 / 4,
        "pp": 2 * BATCH * activation + 2 * shape.vocabulary * shape.width,
    }[axis]
    print(f"{axis} 4{sent / 1e9:14.2f}{formula / 1e9:12.2f}")
    assert abs(sent / formula - 1) < 0.05, (axis, sent, formula)

# %% [markdown]
# The pipeline sends by far the least; its price is the bubble. On the formulas: in `tp`, a block needs four all-gathers
# and reduce-scatters forward and six backward (notebook 6), and the embedding and the logits need five more. In `pp`,
# the second term is the embedding. It is also the matrix of the logits, so the first and the last rank both hold it,
# and sum its gradients.
#
# ## The race
#
# Now eleven ways to use all eight ranks compete. Ranks along `tp` are next to each other, so that the axis that
# communicates most stays inside a node. Then come those along `dp`, and then those along `pp`.

# %%
ways = {
    "dp 8": ({"dp": 8},),
    "dp 8, ZeRO 1": ({"dp": 8}, 1),
    "dp 8, ZeRO 3": ({"dp": 8}, 3),
    "dp 2, tp 4, ZeRO 1": ({"dp": 2, "tp": 4}, 1),
    "dp 4, tp 2, ZeRO 1": ({"dp": 4, "tp": 2}, 1),
    "tp 8": ({"tp": 8},),
    "pp 2, tp 4": ({"pp": 2, "tp": 4},),
    "pp 2, dp 2, tp 2, ZeRO 1": ({"pp": 2, "dp": 2, "tp": 2}, 1),
    "pp 2, dp 4, ZeRO 1": ({"pp": 2, "dp": 4}, 1),
    "pp 4, dp 2, ZeRO 1, ZB-H1": ({"pp": 4, "dp": 2}, 1, "zb-h1"),
    "pp 8, ZB-H1": ({"pp": 8}, 0, "zb-h1"),
}


class Outcome:
    """What a step took; times are means over all ranks."""

    def __init__(self, run):
        begin_s = next(s.start_s for s in run.trace if s.name == "step")
        self.trace = sd.trace.Trace([s for s in run.trace if s.start_s >= begin_s], run.trace.ranks)
        self.gib = max(run.results) / GIB
        told = self.trace.statistics()
        self.seconds = told[0].elapsed_s
        self.computing = np.mean([rank.computing_s for rank in told])
        self.waiting = np.mean([rank.waiting_s for rank in told])
        self.sending = np.mean([rank.communicating_s for rank in told]) - self.waiting

    @property
    def fits(self):
        return self.gib * GIB < cluster.device.memory_bytes


def race(cluster, names):
    found = {name: Outcome(sd.run(step, RANKS, cluster=cluster, args=ways[name])) for name in names}
    return dict(sorted(found.items(), key=lambda item: item[1].seconds))


found = race(cluster, ways)
print(f"{'':27}{'step':>9}{'of ideal':>10}{'memory':>11}")
for name, out in found.items():
    verdict = "" if out.fits else "   does not fit"
    print(f"{name:27}{out.seconds * 1e3:6.0f} ms{ideal_s / out.seconds:10.0%}{out.gib:7.1f} GiB{verdict}")


# %%
def bars(found, title):
    """The step of each way, split by how its time is spent."""
    with style.styled():
        fig = style.figure(style.PAGE, 1.0 + 0.2 * len(found))
        ax = fig.subplots()
        parts = {"computing": "compute", "communicating": "send", "idle": "wait"}
        for y, out in enumerate(found.values()):
            idle = out.seconds - out.computing - out.sending
            left = 0.0
            for (word, kind), seconds in zip(parts.items(), (out.computing, out.sending, idle), strict=True):
                ax.barh(y, seconds * 1e3, left=left, color=style.colour(kind), label=word if y == 0 else None)
                left += seconds * 1e3
            if not out.fits:
                ax.text(left, y, " does not fit", va="center", color=style.ACCENT)
        ax.set_yticks(range(len(found)), list(found))
        ax.axvline(ideal_s * 1e3, color=style.INK, linewidth=0.8, linestyle="--", label="ideal")
        ax.set(xlabel="time of a step, mean over the ranks (ms)")
        ax.invert_yaxis()
        style.legend(fig, ax.get_legend_handles_labels()[0], letters=18)
        style.title(fig, title)
    return fig


best = next(name for name, out in found.items() if out.fits)
slowest = max((name for name, out in found.items() if out.fits), key=lambda name: found[name].seconds)
ratio = found[slowest].seconds / found[best].seconds
bars(found, f"On nodes of {cluster.devices_per_node}, {best} is fastest; {slowest} takes {ratio:.1f} times as long")

# %% [markdown]
# Read the bars from the left. *Computing* takes longer than the ideal, which leaves out the update; it takes longest
# where every rank updates all weights (`dp 8`). *Communicating* means only what does not overlap with computation. The
# rest is idle time: a pipeline's bubble, or waiting for another rank.
#
# ## What limits the best one?
#
# The timeline shows two of its ranks, one from each node:

# %%
timeline(found[best].trace, ranks=[0, RANKS - 1])

# %% [markdown]
# The gaps are the pipeline's bubble, which takes more time than the messages of `tp`, the thin stripes. Compare the
# slowest mesh that fits:

# %%
timeline(found[slowest].trace, ranks=[0, RANKS - 1])

# %% [markdown]
# Here no rank waits for another. But the messages of `tp` cross the link between the nodes in every block, and take
# nearly half of the time.
#
# ## Another cluster, another ranking
#
# Now make the links between the nodes ten times slower, like those of an ordinary network. Which of these five meshes
# suffers most?

# %%
slow = cluster.with_(between=Link(cluster.between.latency_s, cluster.between.bytes_per_s / 10))
again = race(slow, ("dp 8, ZeRO 1", "dp 2, tp 4, ZeRO 1", "pp 2, tp 4", "pp 2, dp 4, ZeRO 1", "tp 8"))
print(f"{'':27}{'fast link':>12}{'slow link':>12}{'slowdown':>11}")
for name, out in again.items():
    before = found[name].seconds
    print(f"{name:27}{before * 1e3:9.0f} ms{out.seconds * 1e3:9.0f} ms{out.seconds / before:10.1f}x")
first, *_, last = again
ratio = again[last].seconds / again[first].seconds
bars(again, f"With a link ten times slower, {first} is fastest, and {last} takes {ratio:.0f} times as long")

# %% [markdown]
# A mesh tolerates a slow link only if it sends little over it. In a pipeline, only activations and their gradients
# cross it, once for each micro-batch.
#
# ## Hundreds of ways, without running them
#
# You have seen eleven ways, but there are hundreds, which differ in schedule, ZeRO stage, micro-batch size and
# recomputation. To predict a step, you need not run all of it. All blocks are alike, so it is enough to run one block,
# on the ranks that share it. With its time, the schedule is simulated, and the time of collectives follows from their
# formulas. How accurate is that?

# %%
given = {"model": "gpt", "layers": 8, "width": 8192, "heads": 64, "context_bytes": 2048, "vocabulary": 51200}
given |= {"global_batch_size": BATCH, "precision": "bf16", "clip_norm": 0.0}
bench = Workbench(cluster, RANKS)


def config_of(sizes, zero=0, order="1f1b"):
    """The same mesh and method, as the settings of a training run."""
    way = {"schedule": order} if "pp" in sizes else {"bucket_bytes": 1 << 26} if zero < 3 else {}
    way |= {"sequence_parallel": True} if "tp" in sizes else {}
    way |= {"recompute": shape.recompute, "zero": zero}
    return Config(**given, **sizes, **way, micro_batches=BATCH // sizes.get("dp", 1), device="phantom")


print(f"{'':27}{'executed':>11}{'predicted':>11}")
for name, out in found.items():
    predicted_s = planned(config_of(*ways[name]), bench).step.seconds
    print(f"{name:27}{out.seconds * 1e3:8.1f} ms{predicted_s * 1e3:8.1f} ms{predicted_s / out.seconds - 1:8.1%}")
    assert abs(predicted_s / out.seconds - 1) < 0.1

# %% [markdown]
# So all ways can be compared. The table lists the fastest for each mesh, and explains its columns. (It calls a text a
# *window*.)

# %%
plans = search(given, bench)
print(*overview(plans, bench, top=9), sep="\n")

# %%
plan_bars(plans.best, bench)

# %% [markdown]
# The best way is faster than all that were run. It uses the same mesh as the fastest of those, but another schedule,
# and micro-batches of two texts.
#
# The command line can search, too: `simdist plan --cluster h100 --ranks 64 --layers 48 --width 8192 --heads 64 …`, or
# with the sizes of a published model, `--model llama3-70b`.
#
# ## How far from real machines?
#
# So far the devices ran at the peak rates of their data sheets. No program reaches these. How much longer does a real
# step take? Table 5 of Korthikanti et al. 2022, arXiv 2205.05198, gives measured times for four models on A100s, all
# with tp 8, once with full recomputation, and once with sequence parallelism and selective recomputation. The cell
# prints two predictions beside them. One is at the peak rates. The other assumes that all models reach the same share
# (*efficiency*) of the peak arithmetic rate, and the same share of the peak memory bandwidth.

# %%
a100 = preset("a100")
reached = a100.with_(device=replace(a100.device, flops_efficiency=0.85, memory_efficiency=0.5))
full, selective = {"recompute": "full"}, {"recompute": "selective", "sequence_parallel": True}
table_5 = [
    ("22B", 1.42, 1.10, {"layers": 48, "width": 6144, "heads": 64}, 4, {}),
    ("175B", 18.13, 13.75, {"layers": 96, "width": 12288, "heads": 96}, 64, {"pp": 8, "chunks": 3}),
    ("530B", 49.05, 37.83, {"layers": 105, "width": 20480, "heads": 128}, 280, {"pp": 35, "chunks": 3}),
    ("1T", 94.42, 71.49, {"layers": 128, "width": 25600, "heads": 160}, 512, {"pp": 64}),
]

print("                         measured   at peak rates     with efficiencies")
for name, full_s, selective_s, size, batch, line in table_5:
    how = given | size | {"global_batch_size": batch, "clip_norm": 1.0, "tp": 8, "device": "phantom"} | line
    how |= {"micro_batches": batch} if line else {}
    how |= {"schedule": "interleaved-1f1b"} if "chunks" in line else {}
    for memory, measured_s in ((full, full_s), (selective, selective_s)):
        config, ranks = Config(**how | memory), 8 * line.get("pp", 1)
        could_s, does_s = (planned(config, Workbench(where, ranks)).step.seconds for where in (a100, reached))
        told = [f"{s:8.2f} s {s / measured_s - 1:+5.0%}" for s in (could_s, does_s)]
        print(f"{name:5}{memory['recompute']:12}{measured_s:14.2f} s{told[0]}      {told[1]}")
        assert abs(does_s / measured_s - 1) < 0.07

# %% [markdown]
# The two efficiencies were fitted to these eight times. What speaks for the model is that two numbers are enough for
# all eight, from 22 billion weights on 8 devices to a trillion on 512. Larger models come closer to the peak rates,
# because memory bandwidth matters less for wider matrices; the predictions show this as well as the measurements.
#
# You can put such efficiencies for your own cluster into a file, which `simdist plan --cluster ours.toml` reads. For
# the machine in front of you, `simdist bench --machine mine.toml` measures what two ranks reach, and writes such a
# file. Then `simdist predict` says how long a step of `simdist train` will take on it, and you can check whether it
# does.
#
# ## Blocks of another kind
#
# So far the blocks were those of GPT-2. With `block="llama"` they are those of Llama, with RMSNorm, an MLP with a gate
# (SwiGLU), rotary position embeddings of queries and keys, and no biases. Newer models also keep less for each token: a
# key and value head is shared by a group of query heads, or, in DeepSeek's models, keys and values are computed from
# one small latent vector per token.
#
# `published` knows the sizes of such models by name. The table shows:
#
# * *weights*: as many as in the published files. (DeepSeek-V3's files also hold a module that predicts a second token,
#   and a number for each expert that steers its load.)
# * *of a token*: the weights that one token uses; in a mixture of experts, only those of its own experts.
# * *GFLOP/token*: the operations of training on one token, in texts as long as in the model's own training.
# * *kept of a token*: what has to be kept of each token while a text is generated: keys and values, or the latent
#   vector and the rotated features of the keys, with 2 bytes each.

# %%
counted = {
    "gpt2-xl": 1_557_611_200,
    "llama2-7b": 6_738_415_616,
    "llama3-70b": 70_553_706_496,
    "mixtral-8x7b": 46_702_792_704,
    "deepseek-v3": 671_026_404_352,
}
print(f"{'':14}{'weights':>18}{'of a token':>17}{'GFLOP/token':>13}{'kept of a token':>17}")
for name, published_weights in counted.items():
    model = published(name)
    latent = model.kv_latent_width and model.kv_latent_width + model.rotary_features
    kept = 2 * model.layers * (latent or model.key_value_width)
    each = model_flops(model, 1) / model.context / 1e9
    print(f"{name:14}{num_parameters(model):18,}{num_active_parameters(model):17,}{each:13.1f}{kept / 1024:13.0f} KiB")
    assert num_parameters(model) == published_weights

# %% [markdown]
# What does it save to share keys and values? The first two lines are for the 70B model on 64 H100s, with tp 8 and ZeRO
# 3, without sharing (64 heads of keys and values) and with it (8). The other two are for 512 H100s and texts twice as
# long, each split over eight ranks, so that keys and values go round a ring (notebook 6):

# %%
llama = {"model": "llama3-70b", "precision": "bf16", "clip_norm": 0.0}
llama |= {"tp": 8, "sequence_parallel": True, "zero": 3, "recompute": "full", "device": "phantom"}
llama |= {"global_batch_size": 8}  # a text a rank of dp
print(f"{'':10}{'kv_heads':>9}{'weights':>18}{'step':>10}{'memory':>12}{'block of keys and values':>29}")
for ranks, more in ((64, {"context_bytes": 8192}), (512, {"context_bytes": 16_384, "sp": 8})):
    for kv_heads in (64, 8):
        config = Config(**llama | more, kv_heads=kv_heads)
        plan = planned(config, Workbench(preset("h100"), ranks))
        sp, llama_weights = more.get("sp", 1), num_parameters(shape_of(config))
        each = 2 * 2 * (more["context_bytes"] // sp) * (kv_heads // 8) * 128  # heads of 128 features, on tp 8
        told = f"{plan.num_bytes / GIB:8.1f} GiB" + (f"{each / 2**20:17.0f} MiB per hop" if sp > 1 else "")
        print(f"{f'sp {sp}':10}{kv_heads:9}{llama_weights:18,}{plan.step.seconds:8.2f} s{told}")
        assert plan.num_bytes < 80e9 and plan.sizes["dp"] == config.global_batch_size

# %% [markdown]
# Sharing reduces the weights for keys and values to an eighth, and the messages of the ring as well. Without a ring,
# the step gains less.
#
# ## A real run: Llama 3 405B
#
# Llama 3 405B was trained on 8,192 and on 16,384 H100s of 80 GB, with tp 8, pp 16, the rest dp, and no recomputation. A
# step read 2,048 texts of 8,192 tokens. Does that fit in memory? And how far was it from the peak of these devices? In
# the prediction, every operation runs at the data sheet's peak, tp includes sequence parallelism, and the ranks along
# dp shard the optimizer state:

# %%
run = {"model": "llama3-405b", "global_batch_size": 2048}
run |= {"tp": 8, "sequence_parallel": True, "pp": 16, "zero": 1, "precision": "bf16", "device": "phantom"}
interleaved = {"schedule": "interleaved-1f1b", "chunks": 8}
tries = [  # ranks, attention, schedule, reported TFLOP/s per device
    (8192, "all scores", {"schedule": "1f1b"}, None),
    (8192, "flash", {"schedule": "1f1b"}, None),
    (8192, "flash", interleaved, 430),
    (16_384, "flash", interleaved, 400),
]
print(f"{'ranks':>6} {'attention':12}{'schedule':18}{'memory':>10}{'bubble':>8}{'step':>9}  TFLOP/s/GPU, reported")
could = {}
for ranks, way, order, reported in tries:
    dp = ranks // 128
    config = Config(**run | order, dp=dp, micro_batches=2048 // dp, flash_attention=way == "flash")
    plan = planned(config, Workbench(preset("h100"), ranks))
    seconds, size = plan.step.seconds, shape_of(config)
    could[ranks] = model_flops(size, 2048) / seconds / ranks / 1e12
    print(f"{ranks:6} {way:12}{order['schedule']:18}{plan.num_bytes / 1e9:7.0f} GB", end="")
    print(f"{plan.step.bubble_s / seconds:8.0%}{seconds:7.2f} s{could[ranks]:18.0f}{reported or '':10}")

# %% [markdown]
# If all scores of attention are stored, it does not fit; with FlashAttention (notebook 5) and 1F1B it just does. The
# authors used an interleaved schedule, which removes most of the bubble. In the prediction it keeps more activations
# than fit in memory, but the authors could limit the number of micro-batches in flight, and their first and last stages
# were one block shorter. They reached about two thirds of the rate predicted at peak.
#
# On twice as many ranks, half as many micro-batches pass through each pipeline, so the bubble's share grows. Does
# efficiency drop as predicted?

# %%
print(f"efficiency, 16,384 ranks / 8,192: {could[16_384] / could[8192]:.2f} predicted, {400 / 430:.2f} reported")

# %% [markdown]
# ## Is it right?
#
# Does a mesh compute the same as one rank? Here a small model trains with real arrays in float64, on one rank and on a
# mesh with three axes, dp 2 x pp 2 x tp 2. The table shows the loss and the norm of the gradient in each step:

# %%
tiny = Shape(layers=3, width=16, heads=4, context=8)
exact = Recipe("adamw", max_norm=1.0, precision=precision("float64"))
texts = np.random.default_rng(0).integers(256, size=(5, 8, tiny.context + 1), dtype=np.uint8)


def learn(comm, sizes):
    mesh = Mesh(comm, **sizes)
    parts = MeshParts(mesh)
    order = schedule("1f1b", stages=mesh.pp.size, micro_batches=8 // mesh.dp.size)
    method = Pipeline(gpt(tiny, parts), mesh, exact, 1, order, spread=parts.spread())
    told = []
    for batch in texts:
        own = batch[mesh.dp.rank :: mesh.dp.size]
        loss = method.train([text[None] for text in own], 1 / (8 * tiny.context), 0.01)
        told.append((loss, method.update.norm))
    return mesh.coordinates, told


(_, one), *_ = sd.run(learn, ranks=1, args=({},)).results
eight = sd.run(learn, ranks=8, args=({"dp": 2, "pp": 2, "tp": 2},)).results
halves = [told for place, told in eight if place["tp"] == 0 and place["pp"] == 0]
print("step        loss on one       on eight    norm on one       on eight")
for i, (loss, norm) in enumerate(one):
    both = sum(told[i][0] for told in halves)
    print(f"{i:4}{loss:19.9f}{both:15.9f}{norm:15.9f}{eight[0][1][i][1]:15.9f}")
    assert np.isclose(loss, both, rtol=1e-11) and np.isclose(norm, eight[0][1][i][1], rtol=1e-9)

# %% [markdown]
# ## Rules of thumb, and where they come from
#
# 1. **Does it fit?** A rank needs 16 bytes per weight, divided by `tp`, by `pp` and, for the parts that ZeRO shards, by
#    `dp`. Activations come on top. You can compute this before anything runs:

# %%
for name, (sizes, *more) in ways.items():
    cut = sizes.get("tp", 1) * sizes.get("pp", 1)
    state = paper_bytes(weights / cut, sizes.get("dp", 1), more[0] if more else 0) / GIB
    print(f"{name:27} state by formula {state:6.1f} GiB, measured with everything else {found[name].gib:6.1f} GiB")
    assert state < found[name].gib

# %% [markdown]
# 2. **Use `tp` only inside a node.** It communicates in every block, and at best part of it overlaps.
# 3. **Use `pp` over the slow links**, with several micro-batches per stage; or use `dp`, if backward takes long enough
#    to hide its communication.
# 4. **Use `dp` for the rest**, with ZeRO 1, which sends no more bytes than plain data parallelism.
# 5. Then **measure**: the timeline shows what limits a step.
#
# ## To take along
#
# * Each of the five axes splits something different. They can be combined into a mesh, because each works within its
#   own groups of ranks.
# * Which mesh is best depends on the links as much as on the model.
# * You can predict the bytes, time and memory of a run before you pay for it. The command line shows them, too:
#   `simdist train --world virtual --cluster h100 --ranks 8 --device phantom --model gpt --tp 4 …`.
#
# **Try:** Double the batch (`BATCH = 16`): which mesh gains most? Set `recompute="full"` in `shape`: does `dp 8` fit
# then? Make nodes of eight, `devices_per_node=8`: what is the order then, and what does the slow link cost?
#
# **Read:** [`simdist/comm/mesh.py`](../simdist/comm/mesh.py),
# [`simdist/parallel/parts.py`](../simdist/parallel/parts.py),
# [`simdist/training/layout.py`](../simdist/training/layout.py); Narayanan et al. 2021, *Efficient large-scale
# language model training on GPU clusters using Megatron-LM*, arXiv 2104.04473, section 5; *The Llama 3 herd of models*,
# arXiv 2407.21783, section 3.3 and table 4.
#
# **Next:** [on a real GPU](10_on_a_gpu.ipynb): what limits one card, and how far is it from its model?
