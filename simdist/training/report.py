"""Report: what a run reached and cost, measured beside predicted beside formula."""

from collections.abc import Mapping
from typing import NamedTuple

from simdist.cluster import Cluster
from simdist.parallel import Compressed
from simdist.parallel.precision import precision
from simdist.trace import Trace
from simdist.training.traffic import Call, calls, costs, formulas, predicted_seconds, transfer_seconds
from simdist.training.trainer import Line, Trainer

__all__ = ["Report", "Row", "report"]


_LEGEND = (
    "measured: on the record. predicted: counted by the algorithm's cost; timed in the virtual world, on links as",
    "measured after the run. formula: the paper's, for the busiest rank and chunks of equal size, on the same links.",
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
    step = calls(trace)
    names = dict.fromkeys(call.span_name for call in step)
    ranks = f"{comm.size} ranks, {config.method}: {', '.join(names)}" if comm.size > 1 else "1 rank"
    summary = [
        f"{config.model}, {trainer.method.model.parameters.size:,} parameters in {config.precision}, "
        f"{config.optimizer}, {ranks}",
        f"{total.steps} steps of {config.global_batch_size} windows in {total.seconds:.1f} s: "
        f"{total.per_second(total.targets):,.0f} tokens/s, "
        f"{total.per_second(total.flops) / 1e9:.1f} GFLOP/s a rank, "
        f"{total.communication_share:.0%} of the time in communication",
        f"validation loss {line.validation_loss:.3f} nats a byte; guessing by the frequency of bytes alone loses "
        f"{trainer.unigram_entropy:.3f}, by the byte before {trainer.bigram_entropy:.3f}",
    ]
    if isinstance(trainer.method, Compressed):
        compressor = trainer.method.compressor
        summary.append(f"{compressor.name}: {compressor.saved_share:.1%} fewer bytes than a ring all-reduce sends")
    scale = trainer.method.update.loss_scale
    if scale:
        summary.append(f"loss scale {scale.value:g}; {scale.skipped_steps} steps skipped for an overflow")
    return Report(summary, _rows(trainer, step, trace, cluster) if comm.size > 1 else [])


def _rows(trainer: Trainer, step: Mapping[Call, int], trace: Trace, cluster: Cluster) -> list[Row]:
    """A step's communication: bytes and messages of rank 0 on the record, and the time of its collectives."""
    comm, total = trainer.comm, trainer.gauge.total
    itemsize = precision(trainer.config.precision).dtype.itemsize
    exact, papers = costs(step, comm, itemsize), formulas(step, comm, itemsize)
    took_s = [(transfer_seconds(trace, call), count) for call, count in step.items()]
    if not step:
        return [
            Row("bytes sent a step, rank 0", f"{total.sent_bytes / total.steps:,.0f}", "", ""),
            Row("messages a step, rank 0", f"{total.messages / total.steps:,.0f}", "", ""),
        ]
    predicted_s = sum(predicted_seconds(cluster, comm.size, call, itemsize) * n for call, n in step.items())
    return [
        Row(
            "bytes sent a step, rank 0",
            f"{total.sent_bytes / total.steps:,.0f}",
            f"{sum(c.sent_bytes * n for c, n in exact):,}",
            f"{sum(f.bytes * n for f, n in papers):,.0f}",
        ),
        Row(
            "messages a step, rank 0",
            f"{total.messages / total.steps:,.0f}",
            f"{sum(c.messages * n for c, n in exact):,}",
            "",
        ),
        Row(
            "collectives of a step, once all ranks are there",
            _milliseconds(sum(s * n for s, n in took_s if s is not None)),
            _milliseconds(predicted_s),
            _milliseconds(sum(f.on(cluster, comm.size) * n for f, n in papers)),
        ),
    ]


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:,.3f} ms"
