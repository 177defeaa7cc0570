# %% [markdown]
# # 7. Experts
#
# A larger model is usually better, but also slower, because every token passes through every weight. A *mixture of
# experts* avoids that: each block has many MLPs, the *experts*, and each token goes to only one or two of them. Which
# expert does a token go to, and what does it cost to send it there?
#
# You need Python and NumPy, and to know what a mesh is ([notebook 6](06_tensor_and_sequence.ipynb)). One cell runs on
# four real processes, if MPI is installed.

# %%
import numpy as np

import simdist as sd
from simdist.arrays import Meter, metered, phantom
from simdist.cluster import preset
from simdist.collectives.watch import watched
from simdist.comm import Mesh
from simdist.nn import Shape, gpt
from simdist.nn.functional import assign, capacity
from simdist.parallel import DataParallel, Recipe
from simdist.parallel.expert import routes
from simdist.parallel.parts import MeshParts
from simdist.parallel.precision import precision
from simdist.plots import collective_steps, expert_load, style
from simdist.training import Config, Trainer

H100 = preset("h100")
adam = Recipe("adamw", precision=precision("bf16"))

# %% [markdown]
# ## More weights, the same work
#
# The table compares models with 1, 8 and 64 experts per block, of which each token uses one. Their phantom arrays have
# true sizes but no data. A *meter* counts the arithmetic of forward and backward for one text (sequence) of 2,048
# tokens.

# %%
print("experts        weights       FLOP/token")
dense = None
for experts in (0, 8, 64):
    shape = Shape(layers=2, width=2048, heads=16, context=2048, experts=experts, capacity_factor=1.0)
    model, meter = gpt(shape), Meter()
    model.parameters.bind(*(phantom(model.parameters.size, np.float32) for _ in range(2)))
    with metered(meter):
        _, context = model.forward(phantom((1, shape.context + 1), np.uint8))
        model.backward(context, 1.0)
    dense = dense or (model.parameters.size, meter.flops)
    ratios = f"{model.parameters.size / dense[0]:.1f} and {meter.flops / dense[1]:.2f} times those of one expert"
    print(f"{experts or 1:7}{model.parameters.size:15,}{meter.flops / shape.context:19,.0f}   {ratios}")

# %% [markdown]
# ## Routing, by hand
#
# In each block a *router*, a small linear layer, gives every token a score for each expert. A softmax turns the scores
# into probabilities, and the token goes to the most likely expert.
#
# So that all experts can work at once on arrays of equal size, each expert has a fixed number of *slots*, its
# *capacity*: the number of tokens divided by the number of experts, times a *capacity factor* (and times two if each
# token goes to two experts). A token whose expert is full is **dropped**: it skips the MLP, and only the residual
# connection carries it on. In the output, `--` marks a dropped token; the slots are numbered through all experts.

# %%
TOKENS, EXPERTS = 16, 4
random = np.random.default_rng(1)
logits = random.normal(size=(TOKENS, EXPERTS))
logits[:, 0] += 1  # this router prefers expert 0
chosen = logits.argmax(axis=1)
slots = capacity(TOKENS, EXPERTS, factor=1.0)
one_group = np.zeros(TOKENS, int)  # all tokens compete for the same slots
(kept,), asked, dropped = assign(chosen[:, None], EXPERTS, one_group, 1, slots, slots)

print("token   ", *(f"{t:2}" for t in range(TOKENS)))
print("expert  ", *(f"{e:2}" for e in chosen))
slot_of = dict(zip(kept.tokens, kept.slots, strict=True))
print("slot    ", *(f"{slot_of.get(t, '--'):>2}" for t in range(TOKENS)))
print(f"{slots} slots per expert; chosen by {asked.tolist()} tokens, dropped {dropped.tolist()}")

# %% [markdown]
# With more slots, fewer tokens are dropped, but more slots stay empty, and an empty slot costs as much computation and
# communication as a full one. The picture shows both shares for 4,096 tokens and 64 experts. The tokens choose all
# experts with the same probability (*even*), or the k-th expert with a probability proportional to $1/k$ (*uneven*):

# %%
factors = np.linspace(0.5, 4, 15)
shares = {}
for name, weight in (("even", np.ones(64)), ("uneven", 1 / np.arange(1, 65))):
    choice = random.choice(64, size=(4096, 1), p=weight / weight.sum())
    group = np.zeros(4096, int)
    for factor in factors:
        room = capacity(4096, 64, factor)
        lost = assign(choice, 64, group, 1, room, room).dropped.sum()
        shares.setdefault(f"{name}: tokens dropped", []).append(lost / 4096)
        shares.setdefault(f"{name}: slots empty", []).append(1 - (4096 - lost) / (64 * room))

with style.styled():
    fig = style.figure(style.PAGE, 2.4)
    ax = fig.subplots()
    for i, (name, values) in enumerate(shares.items()):
        dashes = "--" if name.endswith("empty") else "-"
        ax.plot(factors, values, label=name, linestyle=dashes, markevery=2, **style.series(i))
    ax.set(xlabel="capacity factor", ylabel="share of tokens, of slots", ylim=(0, 1))
    ax.legend(ncols=2, loc="upper left")
    at = int(np.argmin(np.abs(factors - 1.25)))
    even, uneven = (f"{shares[f'{name}: tokens dropped'][at]:.0%}" for name in ("even", "uneven"))
    style.title(
        fig,
        f"At a capacity factor of {factors[at]:.2f} an even router drops {even} of its tokens, an uneven one {uneven}",
    )
fig

# %% [markdown]
# So the router has to choose evenly, and it does not learn to do so by itself.
#
# ## Balance needs an auxiliary loss
#
# An expert that is chosen more often learns more, and is then chosen even more often. The remedy is an *auxiliary
# loss*, $\alpha E \sum_e f_e P_e$, which is added to the model's loss. Here $E$ is the number of experts, $f_e$ the
# share of tokens that chose expert $e$, and $P_e$ the mean probability that the router gave it. It is smallest when all
# experts are used equally. The pictures show two runs on four ranks with two experts each, first without this loss,
# then with it. (The ranks along the axis `ep`, for *expert parallel*, share the experts; for everything else they are
# data parallel.)


# %%
def learn(comm, balance):
    config = Config(
        model="gpt", layers=1, width=32, heads=2, context_bytes=32, experts=8, ep=4, dp=1, balance=balance,
        steps=60, global_batch_size=16, validation_windows=32, interval=60, seed=1,
    )  # fmt: skip
    trainer = Trainer(comm, config)
    line = [line for line in trainer.run() if line][-1]
    return line.validation_loss, trainer.trace()


trained = {balance: sd.run(learn, ranks=4, args=(balance,)).results[0] for balance in (0.0, 0.01)}
expert_load(trained[0.0][1])

# %%
expert_load(trained[0.01][1])

# %% [markdown]
# Without the auxiliary loss, most experts are never chosen. With it, all are used about equally. Why do experts drop
# tokens even where their bars end below the line of the slots? Bars and line show all texts together, but each text has
# its own slots: one may have too few at an expert where others leave theirs empty.

# %%
for balance, (loss, trace) in trained.items():
    (routed,) = routes(trace).values()
    busiest = max(routed.asked) * len(routed.asked) / sum(routed.asked)
    lost = sum(routed.dropped) / sum(routed.asked)
    print(f"alpha {balance:<5} busiest {busiest:.1f}x its share, {lost:5.1%} dropped, validation loss {loss:.2f} nats")

# %% [markdown]
# The auxiliary loss balances the experts, so far fewer tokens are dropped. In so short a run, the validation loss
# hardly changes.
#
# ## The all-to-all
#
# Each rank holds some of the experts, but has tokens for all of them. An *all-to-all* brings the tokens to their
# experts: the j-th block of each rank goes to rank j. Forward needs one all-to-all to the experts and one back, and so
# does backward.

# %%
collective_steps(watched("all_to_all", "pairwise", ranks=4))

# %% [markdown]
# Column cj shows the blocks for rank j. The stripes in rank j's own box are the blocks that it has so far, side by
# side: nothing is added. So on $P$ ranks, each sends $n\frac{P-1}{P}$ of its $n$ bytes, and no algorithm can send less.
# If a rank has $m$ slots in each of $E$ experts, and tokens have width $h$, that is $4\,E m h \frac{P-1}{P}$ numbers
# per layer and step:


# %%
def step(comm, shape, **options):
    """Forward and backward of one text per rank; the ranks share the experts."""
    mesh = Mesh(comm, ep=comm.size)
    parts = MeshParts(mesh, **options)
    method = DataParallel(gpt(shape, parts), mesh.dp, adam, 0, spread=parts.spread(), memory=phantom)
    comm.barrier()
    with comm.span("step"):
        method.backward(phantom((1, shape.context + 1), np.uint8), 1.0)


def measured(shape, ranks, **options):
    """For rank 0: the time of its step and of its all-to-alls, and how many numbers it sent in them."""
    run = sd.run(lambda comm: step(comm, shape, **options), ranks, cluster=H100)
    (whole,) = (s for s in run.trace if s.name == "step" and s.rank == 0)
    exchanges = [s for s in run.trace if s.name.startswith("all_to_all") and s.rank == 0]
    inside = [s for s in run.trace.sends(0) if any(e.start_s <= s.start_s < e.end_s for e in exchanges)]
    return whole.seconds, sum(e.seconds for e in exchanges), sum(s.bytes for s in inside) / 2


large = Shape(layers=2, width=2048, heads=16, context=2048, experts=64, top_k=2, capacity_factor=1.0)
m = capacity(large.context, large.experts, large.capacity_factor, large.top_k)
found = {p: measured(large, p, all_to_all="pairwise") for p in (2, 4, 8, 16, 32)}
print("          million numbers sent            time, ms")
print("ranks     measured     formula       step    all-to-all")
for p, (seconds, exchanging, sent) in found.items():
    formula = 4 * large.layers * large.experts * m * large.width * (p - 1) / p
    print(f"{p:5}{sent / 1e6:13.2f}{formula / 1e6:12.2f}{seconds * 1e3:11.2f}{exchanging * 1e3:14.2f}")
    assert sent == formula

# %%
with style.styled():
    fig = style.figure(style.PAGE, 2.3)
    ax = fig.subplots()
    for i, (seconds, exchanging, _) in enumerate(found.values()):
        ax.bar(i, (seconds - exchanging) * 1e3, color=style.colour("compute"), label=None if i else "the rest")
        bottom = (seconds - exchanging) * 1e3
        ax.bar(i, exchanging * 1e3, bottom=bottom, color=style.colour("all_to_all"), label=None if i else "all-to-all")
    ax.set_xticks(range(len(found)), [str(p) for p in found])
    ax.set(xlabel="ranks that share 64 experts, one text each", ylabel="forward + backward (ms)")
    style.legend(fig, ax.get_legend_handles_labels()[0])
    inside, across = (found[p][1] / found[p][0] for p in (8, 16))
    style.title(fig, f"All-to-all takes {inside:.0%} of a step inside a node of eight, and {across:.0%} across two")
fig

# %% [markdown]
# Each rank has one text, so its arithmetic stays the same on any number of ranks. Still, the step gets shorter up to
# the eight ranks of a node: with more ranks, each holds fewer experts, so it moves fewer weights and gradients through
# its memory. Beyond eight ranks, at least half of the experts are on other nodes, and the links to these are slower.
#
# ## Which all-to-all algorithm?
#
# In *pairwise*, a rank exchanges with one partner after another. In *linear*, it starts all messages at once, so that
# their latencies overlap. *Bruck* packs everything into $\log_2 P$ messages, so most bytes travel several times.
# *Hierarchical* first exchanges inside each node, so that each rank collects all data of its node for one rank of every
# other node, and then exchanges between nodes. Which is fastest on four nodes?

# %%
small = Shape(layers=2, width=256, heads=4, context=256, experts=64, top_k=2, capacity_factor=1.0)
print("all-to-all on 32 ranks, ms     small model    large model")
for algorithm in ("pairwise", "linear", "bruck", "hierarchical"):
    times = [measured(shape, 32, all_to_all=algorithm)[1] for shape in (small, large)]
    print(f"{algorithm:24}" + "".join(f"{seconds * 1e3:15.3f}" for seconds in times))

# %% [markdown]
# Linear is the fastest for both models. In the large one, bytes take most of the time: Bruck is slowest because it
# sends most bytes several times, and pairwise waits in each step for the slowest pair. In the small one, latency takes
# most of the time: pairwise is slowest because its many steps follow one after the other. (As in notebook 2, starting a
# message does not keep its sender busy here. Where it does, few messages help more.)
#
# ## The same training
#
# Which tokens are dropped depends only on their text, not on the rest of the batch or the number of ranks. So four
# ranks with two experts each compute the same as one rank with eight. The cell compares the sum of the losses of the
# same eight texts:

# %%
shape = Shape(layers=2, width=16, heads=2, context=12, experts=8, top_k=2, capacity_factor=1.0)
texts = random.integers(256, size=(8, shape.context + 1), dtype=np.uint8)


def loss(comm):
    mesh = Mesh(comm, ep=comm.size)
    parts = MeshParts(mesh)
    exact = Recipe(precision=precision("float64"))
    method = DataParallel(gpt(shape, parts), mesh.dp, exact, seed=3, spread=parts.spread())
    return method.loss(texts[comm.rank :: comm.size])


alone = sum(sd.run(loss, ranks=1).results)
together = sum(sd.run(loss, ranks=4).results)
print(f"one rank {alone:.12f}, four ranks {together:.12f}")
assert np.isclose(alone, together, rtol=1e-12)
try:
    real = sum(sd.run(loss, ranks=4, world="mpi").results)
except sd.WorldUnavailable as missing:
    print(f"Passed over: {missing}")
else:
    print(f"four processes under mpirun {real:.12f}")
    assert real == together

# %% [markdown]
# ## To take along
#
# * Experts give a model more weights for the same arithmetic. The price is memory, and in each layer two all-to-alls
#   forward and two backward.
# * Each expert has a fixed capacity. If the router chooses unevenly, tokens are dropped and empty slots are sent. An
#   auxiliary loss balances it.
# * In an all-to-all nothing is added, so no bytes can be saved: each rank sends $\frac{P-1}{P}$ of its data. Keep it
#   inside a node if you can.
#
# **Try:** Set `top_k=2` in the training: what share is dropped? Set `capacity_factor=2.0` in `large`: how much longer
# do the all-to-alls take? Solve puzzles 27 and 28.
#
# **Read:** [`simdist/nn/functional/dispatch.py`](../simdist/nn/functional/dispatch.py) and
# [`simdist/nn/layers/experts.py`](../simdist/nn/layers/experts.py) (Fedus, Zoph, Shazeer 2021, *Switch Transformers*,
# arXiv 2101.03961; Lepikhin et al. 2020, *GShard*, arXiv 2006.16668);
# [`simdist/parallel/expert/exchange.py`](../simdist/parallel/expert/exchange.py).
#
# **Next:** [pipeline bubbles](08_pipelines.ipynb): how to split a model between its layers.
