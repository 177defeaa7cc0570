# %% [markdown]
# # 8. Pipeline bubbles
#
# Cut a model between its layers and put one piece, a *stage*, on each rank. Then ranks send only activations to the
# next stage and gradients to the one before, so even a slow link is often fast enough. But the second stage has nothing
# to do until the first has computed something. How little idle time is possible, and how much memory does that take?
#
# You need Python and NumPy. One cell runs on four real processes, if MPI is installed.

# %%
import numpy as np

import simdist as sd
from simdist.arrays import Ledger, phantom, recorded
from simdist.cluster import preset
from simdist.comm import Mesh
from simdist.nn import Shape, gpt
from simdist.parallel import DataParallel, Recipe
from simdist.parallel.pipeline import (
    Memory,
    Pipeline,
    Times,
    executed,
    modelled_costs,
    paper,
    parse,
    schedule,
    schedules,
    simulate,
    split,
    stage_times,
    taken,
    to_text,
    validate,
)
from simdist.parallel.precision import precision
from simdist.plots import pipeline_schedule, style

# %% [markdown]
# ## A schedule is data
#
# A *schedule* is a list of actions for each rank, written as one row. `F0` is the forward of batch 0 on this rank's
# stage, and `B0` its backward. A rank executes its row in order, each action as soon as its inputs have arrived. All
# messages follow from these rows.

# %%
naive = schedule("naive", stages=4, micro_batches=4)
print(to_text(naive), end="")
pipeline_schedule({"naive": simulate(naive).trace()}, unit="")

# %% [markdown]
# Here a forward takes a time of 1. A backward takes 2, because it computes two gradients: that of the input, and that
# of the weights (the lower strip of each cell). At any time, three of the four ranks are idle. This idle time, the
# white space, is called the *bubble*.
#
# ## Micro-batches
#
# *GPipe* cuts the batch into *micro-batches*, and starts the next one as soon as the first stage is free. After the
# last forward, all backwards follow:

# %%
filled = {name: simulate(schedule(name, stages=4, micro_batches=8)).trace() for name in ("gpipe", "1f1b")}
pipeline_schedule({"gpipe": filled["gpipe"]}, unit="")

# %% [markdown]
# With $m$ micro-batches, each of $p$ ranks computes $m$ forwards and $m$ backwards. It is idle for the time of $p-1$
# forwards and $p-1$ backwards, while a micro-batch passes through the other ranks. So the bubble's share of the time is
# $\frac{p-1}{m+p-1}$, which shrinks with more micro-batches. A simulation, which times the schedule's rows, agrees:

# %%
print("micro-batches    simulated bubble     formula    micro-batches kept")
for m in (1, 2, 4, 8, 16, 32):
    one = schedule("gpipe", stages=4, micro_batches=m)
    simulated, formula = simulate(one).own_bubble_rate, 3 / (m + 3)
    print(f"{m:13}{simulated:20.4f}{formula:12.4f}{max(validate(one).memory):15g}")
    assert abs(simulated - formula) < 1e-12

# %% [markdown]
# A small bubble takes many micro-batches, and GPipe has to keep the activations of all of them, because every backward
# comes after every forward.
#
# ## One forward, one backward
#
# But a rank need not wait for all forwards. In *1F1B* it begins the first backward as soon as it can, and then
# alternates: one forward, one backward. The bubble is the same, but rank r keeps the activations of at most $p-r$
# micro-batches, however large $m$ is. How many each rank keeps over time is drawn below each schedule:

# %%
pipeline_schedule(filled, memory=Memory(), unit="")

# %% [markdown]
# ## Smaller stages, and half backwards
#
# Two ideas make the bubble smaller with the same number of micro-batches.
#
# * **Interleaving**: give each rank two stages, one from the front half of the model and one from the back half (paler
#   cells). Stages are then half as long, and so is the wait for them. The price is twice as many messages, and more
#   activations to keep.
# * **Splitting backward**: another stage waits only for the gradient of the *input* (I). The gradient of the *weights*
#   (W) is not needed before the update, so a rank can compute it when it would otherwise be idle. *Zero bubble*
#   schedules (zb) do this.

# %%
few = {
    name: simulate(schedule(name, stages=4, micro_batches=8)).trace()
    for name in ("interleaved-1f1b", "zb-h1", "zb-h2", "zb-v")
}
pipeline_schedule(few, unit="")

# %% [markdown]
# In ZB-H2 no rank is idle between its first action and its last. Later ranks start later and end later; meanwhile the
# others could already begin the next step. ZB-V gives each rank an early stage and a late one, so that all ranks keep
# equally many activations.
#
# ## All schedules
#
# Two numbers describe a schedule: its bubble, and the largest number of micro-batches that a rank keeps. Here are both
# for all schedules, on 4 ranks with 8 micro-batches, where F, I and W take 1 each. The bubble is simulated, and the
# memory counted by `validate`; beside each stands the paper's **formula**. The bubble is the idle share of the rank
# that takes longest from its first action to its last:

# %%
unit = Times(1.0, 1.0, 1.0)
found = {}
print(f"{'':26}{'bubble':>10}{'formula':>10}{'kept, at most':>17}{'formula':>10}")
for name in schedules():
    made_for = {"times": unit} if name in ("v-half", "v-min", "zb-auto") else {}  # the others are the same for all
    one = schedule(name, stages=4, micro_batches=8, **made_for)
    said = paper(one, unit)
    found[name] = simulate(one, unit).own_bubble_rate, max(validate(one).memory)
    rate, kept = (said and said.bubble_rate), (said and max(said.memory))
    told = [f"{'-' if value is None else f'{value:.3f}':>10}" for value in (rate, kept)]
    print(f"{name:26}{found[name][0]:10.3f}{told[0]}{found[name][1]:17.3f}{told[1]}")

# %% [markdown]
# On the table:
#
# * The formulas hold if micro-batches are enough to fill the pipeline and messages take no time; for the bubbles of
#   v-half and v-min, to within half an action.
# * The three pipedream schedules fill and drain the pipeline only once in a whole training, so their papers count no
#   bubble.
# * In gems, chimera, bitpipe and dualpipe, micro-batches enter at both ends, so two ranks hold each weight.
# * Chimera, bitpipe and hanayo are made for as many micro-batches as ranks. Here two such groups leave a bubble in
#   between.
#
# The same as a picture:

# %%
shown = {}
for name, point in found.items():
    if not name.startswith("pipedream"):
        shown.setdefault((round(point[0], 3), round(point[1], 3)), []).append(name)
with style.styled():
    fig = style.figure(style.PAGE, 3.2)
    ax = fig.subplots()
    for i, ((rate, kept), names) in enumerate(sorted(shown.items())):
        ax.plot([kept], [rate], linestyle="none", **style.series(i))
        beside = any(r == rate and kept < k < kept + 1 for r, k in shown)  # a point where this name would be
        place = {"xytext": (-5, -7), "ha": "right"} if beside else {"xytext": (5, 3)}
        ax.annotate(", ".join(names), (kept, rate), textcoords="offset points", **place)
    ax.set(xlabel="most micro-batches kept by a rank", ylabel="bubble (share of time)", xlim=(0, 9.5))
    within = {name: rate for name, (rate, kept) in found.items() if kept <= 4 and not name.startswith("pipedream")}
    best = min(within, key=within.get)
    style.title(fig, f"Within the memory of 1F1B, {best} has the smallest bubble: {within[best]:.1%}")
fig

# %% [markdown]
# A schedule below and to the left of another is better in both respects. (Memory for weights is not drawn.)
#
# ## Build your own
#
# You can write a schedule as text. Before anything runs, `validate` checks it: does every micro-batch go forward and
# backward on every stage, and do no ranks wait for each other in a circle? Its error says what is wrong, and where.
# Here are two wrong schedules and a right one:


# %%
def judged(text):
    try:
        mine = parse(text, "mine")
        kept = validate(mine).memory
    except sd.ScheduleError as error:
        print(error, end="\n\n")
    else:
        print(
            f"mine: bubble {simulate(mine, unit).own_bubble_rate:.3f}, kept {[float(n) for n in kept]}\n{to_text(mine)}"
        )


judged("F0 F1 B0 B1\nF0 B0 F1")
judged("F0 B0 F1 B1\nF1 B1 F0 B0")
judged("F0 F1 B0 B1\nF0 B0 F1 B1")

# %% [markdown]
# Now try it yourself. The schedule below, for three ranks and three micro-batches, is valid but slow. How small can you
# make its bubble? (You may split a `B` into an `I` and a `W`.) The first line is the bubble of 1F1B.

# %%
print(f"1F1B: bubble {simulate(schedule('1f1b', stages=3, micro_batches=3), unit).own_bubble_rate:.3f}")
judged("""
F0 B0 F1 B1 F2 B2
F0 B0 F1 B1 F2 B2
F0 B0 F1 B1 F2 B2
""")

# %% [markdown]
# An algorithm can do this, too: `zb-auto`, with one stage on each rank, searches for the smallest bubble within a
# memory limit. The more memory it may use, the smaller the bubble, until it disappears:

# %%
limits = [1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 7.0]
made_for = {"times": unit, "memory": Memory(1, 0.5)}
searched = [schedule("zb-auto", stages=4, micro_batches=8, memory_limit=m, **made_for) for m in limits]
rates = [simulate(one, unit).own_bubble_rate for one in searched]
with style.styled():
    fig = style.figure(style.PAGE, 2.2)
    ax = fig.subplots()
    ax.plot(limits, rates, label="zb-auto", **style.series(0))
    for i, name in enumerate(("1f1b", "zb-h1", "zb-h2"), 1):
        one = schedule(name, stages=4, micro_batches=8)
        kept = max(validate(one, Memory(1, 0.5)).memory)
        ax.plot([kept], [simulate(one, unit).own_bubble_rate], linestyle="none", label=name, **style.series(i))
    ax.set(xlabel="memory limit (micro-batches)", ylabel="bubble (share of time)")
    ax.legend()
    least = min(rates)
    enough = next(m for m, rate in zip(limits, rates, strict=True) if rate < least + 1e-9)
    left = "no bubble" if least < 1e-9 else f"a bubble of {least:.1%}"
    style.title(fig, f"With memory for {enough:g} micro-batches, zb-auto leaves {left} on four ranks")
fig

# %% [markdown]
# ## Executed
#
# So far the schedules were only timed. Now four simulated H100s train a GPT of 16 blocks, with phantom arrays of true
# size, and execute the rows of a schedule action by action. **Measured** values come from the trace, **predicted** ones
# from the simulation with each stage's modelled time, and the **formula** is the paper's.

# %%
H100 = preset("h100")
adam = Recipe("adamw", precision=precision("bf16"))
shape = Shape(layers=16, width=2048, heads=16, context=2048)
costs = modelled_costs(gpt(shape), 1, shape.context + 1, H100.device, adam.precision.dtype)
M = 8


def carry_out(comm, name):
    one, ledger = schedule(name, stages=comm.size, micro_batches=M), Ledger(comm.clock)
    weight = [layer.total for layer in costs]  # cut into stages that take about the same time
    with recorded(ledger):
        method = Pipeline(gpt(shape), Mesh(comm, pp=comm.size), adam, 0, one, costs=weight, memory=phantom)
        ledger.begin()
        comm.barrier()
        for i in range(M):
            method.backward(phantom((1, shape.context + 1), np.uint8), 1.0, last=i == M - 1)
    return taken(method, ledger)


runs = {}
print("                            bubble                       kept by rank 0        time   activations")
print("                  measured predicted   formula   measured   formula     measured       measured")
for name in ("gpipe", "1f1b", "interleaved-1f1b", "zb-h1", "zb-v"):
    run = sd.run(carry_out, ranks=4, cluster=H100, args=(name,))
    one = schedule(name, stages=4, micro_batches=M)
    times = stage_times(costs, split([layer.total for layer in costs], one.num_stages))
    measured, predicted, said = executed(one, run.trace), simulate(one, times), paper(one, times)
    runs[name] = measured
    rate = "-" if said.bubble_rate is None else f"{said.bubble_rate:.4f}"
    print(f"{name:17}{measured.own_bubble_rate:9.4f}{predicted.own_bubble_rate:10.4f}{rate:>10}", end="")
    print(f"{run.results[0].in_flight:11g}{said.memory[0]:10g}", end="")
    print(f"{measured.makespan * 1e3:10.1f} ms{run.results[0].activation_bytes / 2**30:11.2f} GiB")
    assert abs(measured.own_bubble_rate - predicted.own_bubble_rate) < 0.01

# %%
pipeline_schedule({f"{name}, executed": runs[name].trace() for name in ("1f1b", "zb-v")})

# %% [markdown]
# The formulas leave out messages, which take little time over NVLink. ZB-V leaves a bubble here, because it has none
# only if F, I and W take equally long.
#
# ## The same gradient
#
# In whatever order the actions run, a step computes the same gradient as one rank with the whole batch. The cell prints
# the largest difference in the gradient of any weight, with real arrays in float64:

# %%
tiny = Shape(layers=6, width=8, heads=2, context=5)
exact = Recipe(precision=precision("float64"))
texts = np.random.default_rng(0).integers(256, size=(8, tiny.context + 1), dtype=np.uint8)


def gradients(comm, name):
    if comm.size == 1:
        method = DataParallel(gpt(tiny), comm, exact, 1)
        method.backward(texts, 1 / 40)
    else:
        one = schedule(name, stages=comm.size, micro_batches=4)
        method = Pipeline(gpt(tiny), Mesh(comm, pp=comm.size), exact, 1, one)
        for i in range(4):
            method.backward(texts[2 * i : 2 * i + 2], 1 / 40, last=i == 3)
    return {p.name: p.gradient.copy() for p in method.model.parameters}


(whole,) = sd.run(gradients, ranks=1, args=("none",)).results


def difference(run):
    return max(np.abs(own[name] - whole[name]).max() for own in run.results for name in own)


for name in ("gpipe", "1f1b", "zb-h1", "zb-v"):
    print(f"{name:6} on 4 virtual ranks {difference(sd.run(gradients, ranks=4, args=(name,))):.0e}")
try:
    real = sd.run(gradients, ranks=4, world="mpi", args=("zb-v",))
except sd.WorldUnavailable as missing:
    print(f"Passed over: {missing}")
else:
    print(f"zb-v   on 4 processes     {difference(real):.0e}")
    assert difference(real) < 1e-12

# %% [markdown]
# ## Without a flush
#
# Most schedules wait at the end of a step until the pipeline is empty (a *flush*), and then update the weights.
# *PipeDream* does not wait: it updates a stage's weights after every backward. A micro-batch would then use other
# weights in its backward than in its forward, so a rank keeps several *versions* of its weights. *PipeDream-2BW*
# updates only once for each group of micro-batches, and needs only two versions. The cell prints how many ranks 0 to 3
# keep, by `validate` and by the papers:

# %%
for name in ("1f1b", "pipedream", "pipedream-2bw"):
    one = schedule(name, stages=4, micro_batches=16)
    versions = [max(of_rank, default=1) for of_rank in validate(one).weight_versions]
    print(f"{name:15} {versions}   formula {list(paper(one, unit).weight_versions)}")

# %% [markdown]
# ## To take along
#
# * A pipeline's bubble is the time to fill and drain it. This time is fixed, so with more micro-batches its share is
#   smaller.
# * 1F1B has the same bubble as GPipe, but keeps at most $p$ micro-batches. Interleaving divides the bubble by the
#   number of stages per rank. If backward is split, W can fill idle time.
# * A smaller bubble often takes more memory. Simulation and validation tell you both before a schedule runs.
#
# **Try:** Set `unit = Times(1, 1, 0.5)`: which schedule is best when weight gradients are cheap? Set `unit =
# Times(communication=0.5)`, so that a message takes half as long as a forward: which schedules suffer? Solve puzzles 23
# and 24.
#
# **Read:** [`simdist/parallel/pipeline/formulas.py`](../simdist/parallel/pipeline/formulas.py), a table of all
# schedules with their papers; [`schedules/`](../simdist/parallel/pipeline/schedules/), the schedules themselves;
# [`validate.py`](../simdist/parallel/pipeline/validate.py) and
# [`executor.py`](../simdist/parallel/pipeline/executor.py).
#
# **Next:** [all together](09_all_together.ipynb): which combination of methods suits a model and a cluster.
