"""Report: what a run reached and cost, measured beside predicted beside formula."""

from statistics import median
from typing import NamedTuple

from simdist.arrays import Array, phantom
from simdist.cluster import Cluster
from simdist.collectives import all_reduce, cost, formula
from simdist.collectives.registry import choose
from simdist.comm import Communicator
from simdist.comm.virtual.world import run_virtual
from simdist.trace import Span, Trace
from simdist.training.trainer import Line, Trainer

__all__ = ["Report", "Row", "report"]


_LEGEND = (
    "measured: on the record. predicted: counted by the algorithm's cost; timed in the virtual world, on links as",
    "measured after the run. formula: the paper's, for chunks of equal size, on the same links.",
)


class Row(NamedTuple):
    """One quantity three times: as it was, as the model has it, as the paper has it; already text."""

    quantity: str
    measured: str
    predicted: str
    formula: str


class Report(NamedTuple):
    """A run in a few lines.

    Attributes:
        summary: sentences, a line each.
        rows: the table below them; empty on one rank, which sends nothing.
    """

    summary: list[str]
    rows: list[Row]

    def __str__(self) -> str:
        if not self.rows:
            return "\n".join(self.summary)
        table = [Row("", "measured", "predicted", "formula"), *self.rows]
        widths = [max(len(row[i]) for row in table) for i in range(4)]
        lines = [
            "  ".join([row.quantity.ljust(widths[0]), *(row[i].rjust(widths[i]) for i in range(1, 4))]) for row in table
        ]
        return "\n".join([*self.summary, "", *(line.rstrip() for line in lines), *_LEGEND])


def report(trainer: Trainer, line: Line, trace: Trace, cluster: Cluster) -> Report:
    """What a finished run reached and cost, as rank 0 tells it.

    Args:
        line: the last of the log.
        trace: the record of all ranks, as far as it was kept.
        cluster: the machine that times are predicted for.
    """
    comm, config, total = trainer.comm, trainer.config, trainer.gauge.total
    algorithm = _algorithm(trainer)
    ranks = f"{comm.size} ranks, all_reduce {algorithm}" if comm.size > 1 else "1 rank"
    summary = [
        f"{config.model}, {trainer.replica.weights.size:,} parameters in {config.dtype}, {ranks}",
        f"{total.steps} steps of {config.global_batch_size} windows in {total.seconds:.1f} s: "
        f"{total.per_second(trainer.targets_per_step):,.0f} tokens/s, "
        f"{total.per_second(total.flops / total.steps) / 1e9:.1f} GFLOP/s a rank, "
        f"{total.communication_share:.0%} of the time in communication",
        f"validation loss {line.validation_loss:.3f} nats a byte; "
        f"guessing by the frequency of bytes alone loses {trainer.unigram_entropy:.3f}",
    ]
    return Report(summary, _rows(trainer, algorithm, trace, cluster) if comm.size > 1 else [])


def _algorithm(trainer: Trainer) -> str:
    """Which all-reduce ran, where the config says auto."""
    named = trainer.config.algorithm
    return named if named != "auto" else choose("all_reduce", trainer.comm, trainer.replica.gradient.nbytes).name


def _rows(trainer: Trainer, algorithm: str, trace: Trace, cluster: Cluster) -> list[Row]:
    """A step's all-reduce: bytes and messages of rank 0 on the record, and its time."""
    comm, gradient, total = trainer.comm, trainer.replica.gradient, trainer.gauge.total
    case = {"itemsize": gradient.itemsize, "ranks_per_node": comm.size // comm.num_nodes}
    exact = cost("all_reduce", algorithm, ranks=comm.size, num_bytes=gradient.nbytes, **case)
    paper = formula("all_reduce", algorithm, ranks=comm.size, num_bytes=gradient.nbytes, **case)
    took_s = transfer_seconds(trace, f"all_reduce {algorithm}", gradient.nbytes)
    return [
        Row(
            "bytes sent a step, rank 0",
            f"{total.sent_bytes / total.steps:,.0f}",
            f"{exact.sent_bytes:,}",
            f"{paper.bytes:,.0f}",
        ),
        Row("messages a step, rank 0", f"{total.messages / total.steps:,.0f}", f"{exact.messages:,}", ""),
        Row(
            "all-reduce, once all ranks are there",
            _milliseconds(took_s) if took_s is not None else "not recorded",
            _milliseconds(predicted_seconds(cluster, comm.size, gradient, algorithm)),
            _milliseconds(paper.on(cluster, comm.size)),
        ),
    ]


def transfer_seconds(trace: Trace, name: str, num_bytes: int) -> float | None:
    """How long a collective took from the last rank's coming to the last rank's leaving: the median over all
    its calls in the trace; None where there are none.

    Args:
        name, num_bytes: of its spans.
    """
    calls: dict[int, list[Span]] = {}
    for span in trace:
        if (span.name, span.bytes) == (name, num_bytes):
            calls.setdefault(span.rank, []).append(span)
    steps = zip(*calls.values(), strict=True)
    took_s = [max(s.end_s for s in step) - max(s.start_s for s in step) for step in steps]
    return median(took_s) if took_s else None


def predicted_seconds(cluster: Cluster, ranks: int, gradient: Array, algorithm: str) -> float:
    """How long the same reduction takes in the virtual world, on the model of this cluster."""

    def program(twin: Communicator) -> None:
        all_reduce(phantom(gradient.size, gradient.dtype), twin, algorithm=algorithm)

    return run_virtual(program, ranks, cluster, record=False)[2]


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:,.3f} ms"
