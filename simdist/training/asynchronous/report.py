"""Report: what an asynchronous run reached and cost, measured beside predicted beside formula."""

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from simdist.asynchronous import Exponential
from simdist.asynchronous.parameter_server.message import HEADER_BYTES
from simdist.collectives import cost, formula
from simdist.parallel.precision import precision
from simdist.training.asynchronous.methods import AVERAGING, GOSSIP, SERVED, graph, slowed
from simdist.training.asynchronous.results import Results
from simdist.training.models import build
from simdist.training.report import Report, Row, at_most, count, duration, loss_words, milliseconds, since
from simdist.training.shared_memory import SharedMemoryBytes
from simdist.training.text import Text
from simdist.words import counted

__all__ = ["report"]

_MOST_RANKS = 16

_LEGEND = (
    "measured: on the record, a worker's mean. predicted: counted by what the algorithm sends. formula: the paper's;",
    "of a step's time, what compute_time alone makes of it.",
)
_GIVEN_UP = "A gradient given up is not sent here; in the paper it is, and dropped when it comes."


def report(results: Results, text: Text) -> Report:
    """The results and costs of a finished run, on rank 0."""
    config, p = results.config, len(results.reports)
    seconds, num_parameters = results.seconds, build(config).parameters.size
    flops_per_s = fmean(worker.flops for worker in results.workers) / seconds if seconds else 0.0
    begun = min((worker.clocks[0] for worker in results.workers if worker.clocks), default=0)
    summary = [
        f"{config.model}, {num_parameters:,} parameters in {config.precision}, {config.optimizer}, "
        f"{counted(p, 'rank')}, {config.method}{_who(results)}",
        f"{_steps(results.done)} of each worker, {at_most(config)}{config.global_batch_size} windows a step of all"
        f"{since(begun)} in {duration(seconds)}: "
        f"{results.targets / seconds if seconds else 0:,.0f} tokens/s, {flops_per_s / 1e9:.1f} GFLOP/s a worker",
        "waited for others and their messages: "
        f"{_shares(results.waited_shares(), results.ranks, p - results.num_workers)}",
    ]
    if config.validation_windows and results.validation_step:
        summary.append(loss_words(results.validation_step, min(results.done), results.validation_loss, text))
    if results.lost:
        lost = ", ".join(map(str, results.lost))
        summary.append(f"ranks that died, and without which the others went on: {lost}")
    if results.staleness:
        summary.append(f"staleness of an update: mean {fmean(results.staleness):.2f}, at most {max(results.staleness)}")
    given_up = sum(worker.num_given_up for worker in results.reports)
    if config.method == "backup":
        late = sum(worker.num_late for worker in results.reports)
        summary.append(f"{given_up} gradients given up because their step was over, {late} dropped for coming late")
    return Report(summary, _rows(results, num_parameters), (*_LEGEND, _GIVEN_UP) if given_up else _LEGEND)


def _steps(done: Sequence[int]) -> str:
    apart = f" to {max(done)}" if max(done) > min(done) else ""
    return f"{min(done)}{apart} step{'s' if max(done) != 1 else ''}"


def _shares(waited: Sequence[float], ranks: Sequence[int], num_servers: int) -> str:
    """Each rank's share; of many ranks the means."""
    if len(waited) <= _MOST_RANKS:
        return "  ".join(f"rank {rank} {share:.0%}" for rank, share in zip(ranks, waited, strict=True))
    groups = {"servers": waited[:num_servers], "workers": waited[num_servers:]}
    return "; ".join(
        f"{name} {fmean(shares):.1%} on average, {min(shares):.1%} to {max(shares):.1%}"
        for name, shares in groups.items()
        if shares
    )


def _who(results: Results) -> str:
    """Who does what, and with whom."""
    config, workers = results.config, results.num_workers
    if config.method in SERVED:
        bound = {"ssp": f" at most {config.staleness} steps apart", "backup": f", {results.backups} of them backups"}
        return f": {counted(config.servers, 'server')}, {counted(workers, 'worker')}{bound.get(config.method, '')}"
    if config.method in AVERAGING:
        return f": an average every {config.local_steps} steps"
    return f" on a graph: {config.graph}" if config.method in GOSSIP else ""


def _rows(results: Results, num_parameters: int) -> list[Row]:
    """A step of a worker: bytes, messages, time."""
    config, p = results.config, len(results.reports)
    found = [cost for worker in results.workers for cost in worker.costs]
    if p == 1 or not found:
        return []
    sent, messages = fmean(cost.sent_bytes for cost in found), fmean(cost.messages for cost in found)
    num_bytes = num_parameters * precision(config.precision).dtype.itemsize
    predicted, said = _sent_bytes(results, num_bytes)
    return [
        Row("bytes sent a step, a worker", count(sent), count(predicted), count(said)),
        Row("messages a step, a worker", f"{messages:,.1f}" if messages >= 1 else f"{messages:.2g}", "", ""),
        *_moved(results, num_bytes),
        Row("time of a step", milliseconds(results.step_s), "", milliseconds(_compute_s(results))),
    ]


def _sent_bytes(results: Results, n: int) -> tuple[float | None, float | None]:
    """What a worker sends in a step, exactly and by the paper, with n bytes of weights; a mean over ranks and steps.

    Of a program's own method neither is known.
    """
    config, p = results.config, len(results.reports)
    if config.method in SERVED:
        found = sum(len(worker.clocks) for worker in results.workers)
        given_up = sum(worker.num_given_up for worker in results.workers)  # which sent no gradient
        # In each stretch a worker also asks for the weights before its first step, and says when it is done.
        talks = 1 + 2 * results.joined / max(1, found + given_up)
        return config.servers * HEADER_BYTES * talks + n * found / max(1, found + given_up), n
    if config.method == "d-psgd":
        each = 2 * len(graph(config, p).edges) * n / p
        return each, each
    if config.method == "ad-psgd":
        made = [len(worker.clocks) for worker in results.workers]
        asked = sum(steps for steps, side in zip(made, graph(config, p).sides(), strict=True) if side == 0)
        each = 2 * asked * n / max(1, sum(made))  # a passive rank answers as often as it is asked
        return each, each
    if config.method not in AVERAGING:
        return None, None
    if not results.averages:
        return None, 0.0
    (name, case), share = _average(results, n), _averages(results)
    exact = [cost("all_reduce", name, **case, rank=r).sent_bytes for r in range(p)]
    return fmean(exact) * share, formula("all_reduce", name, **case).bytes * share


def _average(results: Results, n: int) -> tuple[str, dict[str, Any]]:
    """The algorithm of the averages of n bytes of weights, and what `cost` and `formula` take besides."""
    case = {"ranks": len(results.reports), "num_bytes": n, "ranks_per_node": results.ranks_per_node}
    case |= {"itemsize": precision(results.config.precision).dtype.itemsize}
    return results.averages[0].name.split()[1], case


def _averages(results: Results) -> float:
    """How many averages a step has, as far as both are on the record."""
    return len(results.averages) / max(1, len(results.workers[0].costs))


def _moved(results: Results, n: int) -> list[Row]:
    """What rank 0 read and wrote in shared memory to average n bytes of weights without messages."""
    moves, averages = [s for s in results.record if s.rank == 0 and s.name == "move"], results.averages
    spans = [s for s in moves if any(a.start_s <= s.start_s and s.end_s <= a.end_s for a in averages)]
    if not spans:
        return []
    (name, case), share = _average(results, n), _averages(results)
    one = cost("all_reduce", name, **case, staged="posted" in spans[0].detail)
    found = SharedMemoryBytes(
        measured=sum(s.bytes for s in spans) / len(averages) * share,
        predicted=(one.read_bytes + one.written_bytes) * share,
        by_messages=2 * n * (len(results.reports) - 1) / len(results.reports) * share,
    )
    return [Row(*found.row())]


def _compute_s(results: Results) -> float | None:
    """How long a step takes by the config's compute times; None if it sets none, or waits in a way of its own.

    Together, the first n of n + b exponential times take H_{n+b} - H_b means; of constant ones the n-th fastest counts.
    A worker that waits for none takes its own mean.

    Source: Chen et al. 2016, arXiv 1604.00981, of the first n; see `Synchronous`. Dutta et al. 2018, arXiv 1803.01113.
    """
    config, n, b = results.config, results.num_workers, results.backups
    if config.method not in ("async", "bsp", "backup") or not config.compute_seconds:
        return None
    factors = sorted(slowed(config).get(rank, 1.0) for rank in results.ranks[-n:])
    if config.method == "async":
        return config.compute_seconds * fmean(factors)
    if config.compute_time == "exponential" and not slowed(config):
        return Exponential(config.compute_seconds).first_s(n - b, n)
    if config.compute_time == "constant":
        return config.compute_seconds * factors[n - b - 1]
    return None
