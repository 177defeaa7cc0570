# %% [markdown]
# # 3. Who waits for whom
#
# If every step needs the gradients of all workers, every step takes as long as the slowest of them. What if no worker
# waited for another? Then a gradient would be applied to weights that have changed since it was computed. This notebook
# measures both costs.
#
# You do not need MPI. Times are virtual: a slow worker is slow by exactly the factor that you set.

# %%
from math import inf

import numpy as np

import simdist as sd
from simdist.asynchronous import (
    Exponential,
    LogNormal,
    ModelGradient,
    Slowed,
    Snapshots,
    Worker,
    ad_psgd,
    d_psgd,
    first_weights,
    graphs,
    metropolis,
)
from simdist.asynchronous.parameter_server import (
    BoundedStaleness,
    ParameterServer,
    Synchronous,
    asynchronous,
    synchronous,
    train,
)
from simdist.data import PYTHON, Batches, load
from simdist.examples import parameter_server
from simdist.nn import mlp
from simdist.plots import Point, consensus, loss_race, staleness, timeline, waiting

# %% [markdown]
# ## A server, eight workers, and one of them is slow
#
# A small network learns to predict the next byte of Python programs. Its loss is the mean of -ln p, where p is the
# probability that it gave to the byte that in fact follows; the unit is *nats* per byte. A *parameter server* (rank 0)
# holds the weights. Each of eight workers computes a gradient on its part of a batch, *pushes* it to the server, and
# *pulls* the weights.
#
# In *synchronous* training, the server waits for all eight gradients and applies their mean. A gradient that it applies
# alone gets the weight 1/8, so that eight count as much as one such step. Computing one takes about 10 ms, with some
# variation; rank 4 takes four times as long.

# %%
text, _ = load(PYTHON).split(length=17, validation_share=0.1, seed=0)
batches = Batches(text, global_batch_size=256, seed=0)
WORKERS, SECONDS = 8, 1.5
steady = LogNormal(0.01, sigma=0.2)
slow = Slowed(steady, {4: 4.0})


def network():
    return mlp(context_bytes=16, embedding_width=8, hidden_width=32, hidden_layers=1)


def served(comm, rule, times, seconds, rate):
    """Train until the clock passes `seconds`, and finish the step; returns this rank's report."""
    model = network()
    gradient = ModelGradient(model, batches, comm.rank - 1, comm.size - 1)
    server = ParameterServer(1, rule, compute_time=times)
    return train(comm, first_weights(model), gradient, 10**6, rate, server, asked=lambda: comm.clock() > seconds)


def race(rule, times=slow, seconds=SECONDS, rate=0.3):
    return sd.run(served, 1 + WORKERS, args=(rule, times, seconds, rate))


all_in_step = race(synchronous())
timeline(all_in_step.trace, ranks=range(6), start_s=0.3, end_s=0.5)

# %% [markdown]
# Blue is computing, hatched is waiting. (Ranks 6 to 8 are not drawn; they look like rank 5.) All workers start each
# step together. Seven finish early, and wait for the new weights until rank 4 has pushed its gradient. In
# *asynchronous* training nobody waits: the server applies each gradient as soon as it arrives.

# %%
nobody_waits = race(asynchronous())
timeline(nobody_waits.trace, ranks=range(6), start_s=0.3, end_s=0.5)

# %% [markdown]
# ## Three rules
#
# *Bounded staleness* is a compromise between the two: no worker may be more than s steps ahead of the slowest. All
# three rules run for 1.5 s; then the workers are asked to stop:

# %%
runs = {"synchronous": all_in_step, "at most 3 apart": race(BoundedStaleness(3)), "asynchronous": nobody_waits}
print("the last worker ended after", ", ".join(f"{run.elapsed_s:.2f} s ({name})" for name, run in runs.items()))
waiting({name: run.trace for name, run in runs.items()})

# %% [markdown]
# No worker stops in the middle of a step. With bounded staleness, the workers that are ahead stop first, and the slow
# one goes on until it has caught up: hence the white space in the middle picture. To give all rules the same time, the
# comparison below counts only steps that ended within 1.5 s:


# %%
def points(run):
    found = [Point(*p) for w in run.results[1:] for p in zip(w.clocks, w.times_s, w.losses, strict=True)]
    return [p for p in found if p.time_s <= SECONDS]


def last_loss(run, share=0.1):
    """The mean loss over the last `share` of the time."""
    found = points(run)
    end_s = max(p.time_s for p in found)
    return np.mean([p.loss for p in found if p.time_s > (1 - share) * end_s])


print("                steps of the slowest   fastest   gradients   loss at the end")
for name, run in runs.items():
    steps = [sum(t <= SECONDS for t in w.times_s) for w in run.results[1:]]
    print(f"{name:15} {min(steps):20} {max(steps):9} {sum(steps):11} {last_loss(run):17.3f}")
loss_race({name: points(run) for name, run in runs.items()}, unit="nats per byte")

# %% [markdown]
# The left plot shows the loss by steps, the right one by time. Step by step, the three rules learn about equally well,
# but in the same time the asynchronous workers make far more steps. With the bound, the fast workers soon wait for the
# slow one in every step. (They begin their last step 3 ahead of it, and end it 4 ahead.) A bound helps against workers
# that are slow *now and then*, not against one that is always slow.
#
# ## What it costs not to wait
#
# A worker pulls weights, computes a gradient with them, and pushes it. The *staleness* of its update is the number of
# other updates that the server has applied between the pull and the push. In synchronous training it is 0.

# %%
stale = {name: run.results[0].counts.staleness for name, run in runs.items()}
for name, found in stale.items():
    print(f"{name:15} mean {np.mean(found):5.2f}, most {max(found)}")
staleness({name: stale[name] for name in ("at most 3 apart", "asynchronous")})

# %% [markdown]
# With p equally fast workers, p-1 other updates arrive while one of them computes. A slow worker misses more. With the
# bound, each of the seven others may push s + 1 times while the slow worker computes its first step: s limits steps,
# not updates. Without a bound, each of them pushes about four times during every step of the slow worker:

# %%
counts = nobody_waits.results[0].counts
of = {w: [t for t, (by, _) in zip(counts.staleness, counts.applied, strict=True) if by == w] for w in range(WORKERS)}
print("mean staleness by worker:", ", ".join(f"{np.mean(found):.1f}" for found in of.values()))

# %% [markdown]
# A stale gradient points downhill from where the weights used to be. What harm does that do? Take the simplest loss,
# $\frac12 w^2$, whose gradient is $w$, without noise. A synchronous step with learning rate η turns $w$ into $(1 -
# η)w$, so training converges for any η between 0 and 2. An asynchronous update, with its weight of 1/8, subtracts $η/8$
# times a $w$ that may be old.


# %%
def bowl(comm, rule, rate, steps):
    w = np.ones(1)
    server = ParameterServer(1, rule, compute_time=steady)
    report = train(comm, w, lambda w, step: (0.5 * float(w[0]) ** 2, w.copy()), steps, rate, server)
    return abs(report.state.vectors["weights"][0]) if comm.rank == 0 else 0.0


print("|w| after 40 steps, from w = 1")
print("rate   synchronous   asynchronous")
for rate in (0.2, 0.5, 1.0, 1.5, 1.9):
    left = [sd.run(bowl, 1 + WORKERS, args=(rule, rate, 40)).results[0] for rule in (synchronous(), asynchronous())]
    print(f"{rate:4} {left[0]:13.1e} {left[1]:14.1e}")

# %% [markdown]
# At small rates stale gradients do no harm, because $w$ changes little while they are on their way. At larger rates
# they slow convergence down. At the largest rate, $w$ ends farther from the minimum than it started, although
# synchronous training still converges.
#
# ## The bound on staleness is exact
#
# When a worker *begins* a step, it may be at most s steps ahead of the slowest. So whenever a worker ends step c, every
# other worker has already ended step c-s-1. The cell counts how far ahead the workers really get:

# %%
print("    s   most ahead   mean staleness   share of the time waited")
for s in (0, 1, 3, 10, inf):
    run = race(BoundedStaleness(s), seconds=1.0)
    ended = sorted((t, w, c) for w, r in enumerate(run.results[1:]) for c, t in zip(r.clocks, r.times_s, strict=True))
    clocks, ahead = [0] * WORKERS, 0
    for _, worker, c in ended:
        ahead = max(ahead, c - min(clocks))
        clocks[worker] = c + 1
    waited = np.mean([r.waited_s / r.elapsed_s for r in run.results[1:]])
    print(f"{s:5} {ahead:12} {np.mean(run.results[0].counts.staleness):16.2f} {waited:26.0%}")
    assert ahead <= s

# %% [markdown]
# The larger s is, the less the workers wait, and the staler their updates are. With s = 0 all workers compute with the
# same weights, as in synchronous training. Their updates count as stale only because the server applies them one by
# one.
#
# ## Backup workers
#
# You can also stay synchronous and not wait for the slowest: start N + b workers, take the first N gradients of each
# step, and drop the rest (Chen et al. 2016). If computing takes a random time, exponentially distributed with mean 1, a
# step takes on average
#
# $$ H_{N+b} - H_b, \qquad H_n = 1 + \tfrac12 + \dots + \tfrac1n. $$

# %%
STEPS = 400


def steps_only(comm, backups):
    """Steps that only take time: the gradient is zero, and takes exponentially distributed time."""
    nothing = np.zeros(1)
    server = ParameterServer(1, Synchronous(backups), compute_time=Exponential(1.0))
    return train(comm, nothing, lambda w, step: (0.0, nothing), STEPS, 0.1, server)


def harmonic(n):
    return sum(1 / k for k in range(1, n + 1))


print("workers   backups   seconds/step:   measured   formula")
for backups in (0, 1, 2, 4):
    seconds = sd.run(steps_only, 1 + 16, args=(backups,), record=False).elapsed_s / STEPS
    formula = harmonic(16) - harmonic(backups)
    print(f"     16 {backups:9} {seconds:26.3f} {formula:9.3f}")
    assert abs(seconds / formula - 1) < 0.1

# %% [markdown]
# The first backup worker saves the most, because the last of many workers is much later than the one before it.
#
# ## Without a server: gossip
#
# In *gossip* there is no central copy of the weights. Each rank has its own, and in every round averages them with
# those of its neighbours on a graph; the matrix W holds the coefficients. How fast do they come to agree? Without
# gradients, they converge to their common mean. The *consensus error* is their squared distance from it. Each round
# leaves at most the share $\max(\lambda_2, |\lambda_n|)^2$ of this error, where $\lambda_2$ and $\lambda_n$ are the
# second largest and the smallest eigenvalue of W:


# %%
def agree(comm, graph, rounds):
    x = np.random.default_rng(comm.rank).normal(size=50)
    snapshots = Snapshots(comm, x)
    worker = Worker(comm, x, lambda w, step: (0.0, np.zeros_like(w)), 0.0, observe=snapshots.take)
    d_psgd(worker, metropolis(graph), rounds)
    snapshots.errors()


shapes = {"ring": graphs.ring(16), "torus": graphs.torus(4, 4), "exponential": graphs.exponential(16)}
agreed = {name: sd.run(agree, 16, args=(graph, 25)).trace for name, graph in shapes.items()}
consensus(agreed, {name: metropolis(graph).contraction for name, graph in shapes.items()}, width=5.0)

# %% [markdown]
# On a ring, values from the far side take many rounds to arrive. In the exponential graph, each rank is connected to
# those 1, 2, 4, … places away. With more neighbours a round takes longer, but far fewer rounds are needed.
#
# Now with gradients, and with the slow worker again. In **D-PSGD** a rank waits only for its neighbours, but they wait
# for theirs, so a delay spreads over the whole graph. In **AD-PSGD** a rank that is ready averages with a single
# neighbour, and does not wait for the others.


# %%
def gossiped(comm, method, steps, seconds):
    model = network()
    gradient = ModelGradient(model, batches, comm.rank, comm.size)
    times = Slowed(steady, {3: 4.0})  # the same worker as before: there rank 0 was the server
    worker = Worker(comm, first_weights(model), gradient, 0.3, compute_time=times)

    def over():
        return comm.clock() > seconds

    if method == "D-PSGD":
        d_psgd(worker, metropolis(graphs.ring(comm.size)), steps, asked=over)
    else:
        ad_psgd(worker, graphs.bipartite(comm.size), steps, asked=over)
    steps_made = zip(worker.times_s, worker.losses, strict=True)
    return [Point(i, t, loss) for i, (t, loss) in enumerate(steps_made) if t <= seconds]


found = {name: points(runs[name]) for name in ("synchronous", "asynchronous")}
for method in ("D-PSGD", "AD-PSGD"):
    run = sd.run(gossiped, WORKERS, args=(method, 10**6, SECONDS))
    found[method] = [point for own in run.results for point in own]
    print(f"{method:8} gradients by worker: {[len(own) for own in run.results]}; the fourth is slow")
loss_race(found, unit="nats per byte")

# %% [markdown]
# In D-PSGD all workers make about as many steps as the slow one, as in synchronous training. Its loss is higher,
# because the weights of ranks that average with only two neighbours stay farther apart. In AD-PSGD the slow worker
# delays nobody else, as in asynchronous training, but no server is needed.
#
# ## On real processes
#
# The same rules run on four processes, one server and three workers. Rank 2 sleeps, so that each of its steps takes
# four times as long. The cell prints, for each rule, which share of its time each rank waited.

# %%
try:
    sd.run(parameter_server.main, ranks=4, world="mpi", args=(15,))
except sd.WorldUnavailable as missing:
    print(f"Passed over: {missing}")

# %% [markdown]
# ## To take along
#
# * In synchronous training, every step takes as long as its slowest worker. In asynchronous training, gradients are
#   stale, by about p-1 updates on average; that is harmless only if the learning rate is small enough.
# * A bound on staleness absorbs random delays. It does not help against a worker that is always slow.
# * With backup workers, no step waits for the slowest few; their work is discarded.
# * Gossip needs no server. An update of one rank reaches all others after as many rounds as the diameter of the graph,
#   the distance between its two farthest ranks.
#
# **Try:** Set `slow = Slowed(steady, {})`, with no slow worker: is asynchronous training still faster? Set `sigma=1.0`.
# Add `graphs.complete(16)` to `shapes`. Use `graphs.complete` instead of `graphs.ring` in `gossiped`: what happens to
# the loss of D-PSGD? Solve puzzles 21 and 22.
#
# **Read:** [`asynchronous/parameter_server/consistency.py`](../simdist/asynchronous/parameter_server/consistency.py),
# all three rules on one page; [`asynchronous/gossip.py`](../simdist/asynchronous/gossip.py);
# [`asynchronous/pairwise.py`](../simdist/asynchronous/pairwise.py). Ho et al. 2013, *More effective distributed ML via
# a stale synchronous parallel parameter server*; Chen et al. 2016, arXiv 1604.00981; Lian et al. 2017, arXiv
# 1705.09056, and 2018, arXiv 1710.06952.
#
# **Next:** [data parallel](04_data_parallel.ipynb): synchronous again, without a server.
