"""What the tests of the parameter server have in common: a problem, its serial solution, an ideal network."""

import numpy as np

from simdist.asynchronous.parameter_server import Server, ServerReport, Shard, plain_sgd, train
from simdist.cluster import Cluster, Device, Link

__all__ = ["IDEAL", "gradient_of", "reports", "serial", "serve", "told", "weights_of", "worked"]

KEYS = 7
RATE = 0.1

IDEAL = Cluster("ideal", Device("fast", 1e18, 1e18, 1e18), Link(1e-9, 1e18), Link(1e-9, 1e18))
"""Messages and updates take next to no time on it."""

_RNG = np.random.default_rng(0)
_INPUTS = _RNG.normal(size=(64, KEYS))
_TARGETS = _INPUTS @ _RNG.normal(size=KEYS) + 0.1 * _RNG.normal(size=64)


def gradient_of(worker, workers):
    """Least squares, one sample a step: that of the data of one of so many workers."""

    def gradient(weights, step):
        i = (step * workers + worker) % len(_TARGETS)
        error = _INPUTS[i] @ weights - _TARGETS[i]
        return 0.5 * error**2, error * _INPUTS[i]

    return gradient


def serial(workers, steps, rate=RATE):
    """What one rank makes of the mean gradient of all workers' data, by plain SGD."""
    weights = np.zeros(KEYS)
    for step in range(steps):
        weights -= rate * np.mean([gradient_of(w, workers)(weights, step)[1] for w in range(workers)], axis=0)
    return weights


def serve(comm, layout, consistency, rate=RATE, **options):
    """A server's part, with plain SGD from zeros on; its Server, when all workers have left."""
    keys = layout.keys(comm.rank)
    weights = np.zeros(keys.stop - keys.start)
    shard = Shard(weights, keys, layout.row_width, plain_sgd(weights, keys.start))
    server = Server(comm, layout, shard, consistency, lambda step: rate, **options)
    server.serve()
    return server


def worked(comm, how, steps, **options):
    """The program: train; this rank's report."""
    worker, workers = comm.rank - how.num_servers, comm.size - how.num_servers
    return train(comm, np.zeros(KEYS), gradient_of(worker, workers), steps, RATE, how, **options)


def told(report):
    """A report as numbers and arrays, which can travel."""
    if isinstance(report, ServerReport):
        counts = report.counts
        return {
            "weights": report.state.vectors["weights"],
            "staleness": counts.staleness,
            "applied": [list(pair) for pair in counts.applied],
            "num_late": counts.num_late,
            "elapsed_s": report.elapsed_s,
        }
    return {"elapsed_s": report.elapsed_s, "clocks": report.clocks, "losses": report.losses, "ended": report.ended}


def reports(comm, how, steps):
    """The same as `worked`, told."""
    return told(worked(comm, how, steps))


def weights_of(results, num_servers):
    """The whole vector, from what the servers told or reported."""
    shards = [r["weights"] if isinstance(r, dict) else r.state.vectors["weights"] for r in results[:num_servers]]
    return np.concatenate(shards)
