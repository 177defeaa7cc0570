"""Report: what a run reached and cost, measured beside predicted beside formula."""

from collections.abc import Callable, Mapping, Sequence
from math import inf, isfinite
from pathlib import Path
from typing import NamedTuple

from simdist.arrays import Moment
from simdist.cluster import Cluster
from simdist.nn.formulas import model_flops
from simdist.parallel import Compressed
from simdist.parallel.expert import routes
from simdist.parallel.memory import Prediction, memory_rows
from simdist.parallel.pipeline import PipelineRow, Taken
from simdist.parallel.precision import precision
from simdist.trace import Trace
from simdist.training.config import Config
from simdist.training.memory import predictions
from simdist.training.methods import CUTTING
from simdist.training.models import build, shape
from simdist.training.pipeline_report import PipelinePrediction, predicted_pipeline
from simdist.training.shared_memory import shared_memory_bytes
from simdist.training.text import Text
from simdist.training.traffic import Call, calls, predicted_seconds, rings, sent, transfer_seconds
from simdist.training.trainer import Line, Trainer
from simdist.words import aligned, counted

__all__ = [
    "Report",
    "Row",
    "at_most",
    "count",
    "duration",
    "experts_words",
    "loss_words",
    "milliseconds",
    "report",
    "since",
]


_LEGEND = (
    "measured: from the trace, of a step those of the last. predicted: bytes and messages by the algorithms' costs,",
    "times by the virtual world, over the cluster's links (for real ranks, links measured after the run). formula: the",
    "paper's, for the busiest rank and equal chunks, over the same links.",
    "peak bytes: of arrays that outlive an operation, and of collectives' buffers; each category at its own peak,",
    "predicted as if all streams reached theirs at once.",
)
_MFU = (
    "MFU: model FLOPs, with those of scores that a causal mask hides (PaLM's count), as a share of the rate of matrix",
    "products: the cluster's, or what each real rank reached while all computed; while others wait, one may exceed it.",
)
_OWN_PART = "optimizer state: also this rank's part of the weights, once more, which ZeRO updates in one piece."


class Row(NamedTuple):
    """One quantity three times: as measured, as predicted, and by the paper's formula; already text."""

    quantity: str
    measured: str
    predicted: str
    formula: str


class Report(NamedTuple):
    """A run in a few lines: sentences, one per line, the table below them, and the meaning of its columns."""

    summary: list[str]
    rows: list[Row]
    legend: tuple[str, ...] = _LEGEND

    def __str__(self) -> str:
        if not self.rows:
            return "\n".join(self.summary)
        table = [Row("", "measured", "predicted", "formula"), *self.rows]
        return "\n".join([*self.summary, "", *aligned(table, left=1), *self.legend])


def report(
    trainer: Trainer,
    line: Line,
    trace: Trace,
    cluster: Cluster,
    matmul_flops_per_s: float = 0.0,
    took: Sequence[Taken] = (),
) -> Report:
    """The results and costs of a finished run, as seen by rank 0.

    Args:
        line: the last of the log.
        trace: the record of all ranks, as far as it was kept.
        cluster: the machine that times are predicted for.
        matmul_flops_per_s: the rate of matrix products on one of its ranks, if known.
        took: what `taken_by_all` returns, for a pipeline.
    """
    config, step = trainer.config, calls(trace)
    summary = _summary(trainer, line, step, matmul_flops_per_s)
    if config.experts:
        summary.append(experts_words(line, trace))
    prediction = predicted_pipeline(trainer.method, config)
    words = (*_LEGEND, *(_MFU if _mfu(trainer, matmul_flops_per_s) else ()))
    if config.zero in (1, 2) and not precision(config.precision).mixed:
        words += (_OWN_PART,)
    rows = _rows(trainer, step, trace, cluster, prediction) if trainer.comm.size > 1 else []
    if prediction is None:
        return Report(summary, [*rows, *_memory_rows(trainer, step, cluster)], words)
    runs = prediction.measured_and_simulated(trace, cluster)
    own = prediction.memory(runs)
    rows += [*_memory_rows(trainer, step, cluster, own), *map(_pipeline_row, prediction.rows(runs, took))]
    return Report(summary, rows, (*words, *prediction.legend))


def _summary(trainer: Trainer, line: Line, step: Mapping[Call, int], matmul_flops_per_s: float) -> list[str]:
    """What was trained, how, how fast, and to which loss."""
    config, total, done = trainer.config, trainer.profiler.total, trainer.done
    summary = [
        f"{config.model}, {build(config).parameters.size:,} parameters in {config.precision}, {config.optimizer}, "
        f"{_ranks(trainer, step)}",
        f"{counted(done, 'step')} of {at_most(config)}{config.global_batch_size} windows"
        f"{since(done - total.steps)} in {duration(total.seconds)}: "
        f"{total.per_second(total.targets):,.0f} tokens/s, "
        f"{_rate(total.per_second(total.flops), matmul_flops_per_s)}{_mfu(trainer, matmul_flops_per_s)}, "
        f"{total.communication_share:.0%} of the time in communication",
        *([loss_words(line.step, done, line.validation_loss, trainer.text)] if config.validation_windows else []),
        peak_words(trainer.ledger.peak),
    ]
    if isinstance(method := trainer.method, Compressed):
        saved = method.compressor.saved_share
        than = f"{abs(saved):.1%} {'more' if saved < 0 else 'fewer'} bytes than a ring all-reduce sends"
        summary.append(f"{method.compressor.name}: {than}")
    scale = method.update.loss_scale
    if scale:
        summary.append(f"loss scale {scale.value:g}; {scale.skipped_steps} steps skipped because of an overflow")
    return summary


def loss_words(step: int, done: int, loss: float, text: Text) -> str:
    """How well the model predicts after a step, and how well unigrams and bigrams do."""
    after = "" if step == done else f" after step {step}:"
    guesses = f"unigram entropy {text.unigram_entropy:.3f}, bigram entropy {text.bigram_entropy:.3f}"
    found = f"validation loss{after} {loss:.3f} nats a byte ({guesses})"
    return found if isfinite(loss) else f"{found}. The run has diverged: try a lower learning_rate, or a larger batch"


def _ranks(trainer: Trainer, step: Mapping[Call, int]) -> str:
    """The number of ranks, the axes of their mesh, and their method."""
    comm, config = trainer.comm, trainer.config
    if comm.size == 1:
        return "1 rank"
    sizes = {axis: getattr(config, axis) or 1 for axis in ("pp", *CUTTING)}
    cut = [f"{axis} {size}" for axis, size in sizes.items() if size > 1]
    axes = " x ".join([f"dp {trainer.method.comm.size}", *cut]) + ", " if cut else ""
    names = dict.fromkeys(call.span_name for call in step)
    way = Path(config.schedule or config.method).name
    shards = f" in {counted(config.shards, 'shard')}" if config.shards else ""
    return f"{comm.size} ranks, {axes}{way}{shards}{': ' if names else ''}{', '.join(names)}"


def at_most(config: Config) -> str:
    """The words before the number of windows in a batch: the last batch of an epoch may have fewer."""
    return "at most " if config.order == "passes" else ""


def since(begun: int) -> str:
    """Which steps the following times cover, if the run was resumed."""
    return f", those since step {begun}" if begun else ""


def duration(seconds: float) -> str:
    """In seconds, or less than one in milliseconds."""
    return f"{seconds:.1f} s" if seconds >= 0.9995 or not seconds else f"{seconds * 1e3:.3g} ms"


def peak_words(peak: Moment) -> str:
    """Where the memory of rank 0 peaked, and what used most of it."""
    where = f" in {peak.at}" if peak.at else ""
    share = peak.of(peak.largest) / peak.total if peak.total else 0
    return f"memory of rank 0 peaks at {peak.total:,} bytes{where}, {share:.0%} of them {peak.largest}"


def _memory_rows(
    trainer: Trainer, step: Mapping[Call, int], cluster: Cluster, own: Mapping[str, Prediction] | None = None
) -> list[Row]:
    """The most memory of each category that rank 0 held in a step; `own` is what the method predicts itself."""
    predicted = predictions(trainer.method, trainer.config, trainer.data, step, cluster) | dict(own or {})
    found = memory_rows(trainer.ledger, predicted)
    return [
        Row(f"peak bytes of {row.category}, rank 0", *map(count, (row.measured, row.predicted, row.paper)))
        for row in found
        if row.measured or row.predicted
    ]


def experts_words(line: Line, trace: Trace) -> str:
    """The experts' auxiliary loss, and how even their loads are, if that is on the record."""
    words = f"experts: auxiliary loss {line.auxiliary_loss:.4f} nats a byte, beside the loss"
    found = [routed for routed in routes(trace).values() if 0 < sum(routed.asked) < inf]  # of phantoms nan
    if found:
        most = max(max(routed.asked) * len(routed.asked) / sum(routed.asked) for routed in found)
        dropped = sum(sum(routed.dropped) for routed in found) / sum(sum(routed.asked) for routed in found)
        words += f"; the busiest is asked for {most:.2f} times its share, {dropped:.1%} of choices are dropped"
    return words


def _rate(flops_per_s: float, matmul_flops_per_s: float) -> str:
    share = f" ({flops_per_s / matmul_flops_per_s:.0%} of the rate of matrix products)" if matmul_flops_per_s else ""
    rate = f"{flops_per_s / 1e9:.1f} GFLOP/s" if flops_per_s < 1e12 else f"{flops_per_s / 1e12:.1f} TFLOP/s"
    return f"{rate} a rank{share}"


def _mfu(trainer: Trainer, matmul_flops_per_s: float) -> str:
    """Model FLOPs utilization, by the papers' count: without recomputation and the like."""
    size, total = shape(trainer.config), trainer.profiler.total
    if size is None or not matmul_flops_per_s:
        return ""
    needed = model_flops(size, total.targets / size.context)
    return f", MFU {total.per_second(needed) / trainer.comm.size / matmul_flops_per_s:.1%}"


def _rows(
    trainer: Trainer, step: Mapping[Call, int], trace: Trace, cluster: Cluster, prediction: PipelinePrediction | None
) -> list[Row]:
    """A step's communication: bytes and messages of rank 0 on the record, and the time of its collectives."""
    comm, total = trainer.comm, trainer.profiler.total
    if not step:
        return [
            Row("bytes sent a step, rank 0", count(total.sent_bytes / total.steps), "", ""),
            Row("messages a step, rank 0", count(total.messages / total.steps), "", ""),
        ]
    itemsize = trainer.method.item_bytes

    def every(figure: Callable[[Call], float]) -> float:
        """The sum of this figure over all collectives of the step."""
        return sum(figure(call) * n for call, n in step.items())

    # The messages of a pipeline and of rings belong to no collective.
    messages, sent_bytes = (prediction.messages[0], prediction.taken[0].sent_bytes) if prediction else (0, 0)
    ring = rings(trace, trainer.config.sp or 1, trainer.config.tp or 1, itemsize)
    num_sent, measured_bytes = sent(trace)
    predicted_bytes = every(lambda call: call.cost(comm, itemsize).sent_bytes) + sent_bytes + ring.sent_bytes
    formula_bytes = every(lambda call: call.formula(comm, itemsize).bytes) + sent_bytes + ring.formula_bytes
    predicted = every(lambda call: call.cost(comm, itemsize).messages) + messages + ring.messages
    took_s = every(lambda call: transfer_seconds(trace, call) or 0.0)
    predicted_s = every(lambda call: predicted_seconds(cluster, call, itemsize))
    formula_s = every(lambda call: call.seconds(call.formula(comm, itemsize), cluster))
    shared = shared_memory_bytes(trace, step, comm, itemsize)
    return [
        Row("bytes sent a step, rank 0", *map(count, (measured_bytes, predicted_bytes, formula_bytes))),
        Row("messages a step, rank 0", count(num_sent), count(predicted), ""),
        Row("collectives of a step, once all ranks are there", *map(milliseconds, (took_s, predicted_s, formula_s))),
        *([] if shared is None else [Row(*shared.row())]),
    ]


def count(number: float | None) -> str:
    """A number in a row, such as of bytes, without decimals; nothing for None."""
    return "" if number is None else f"{number:,.0f}"


def milliseconds(seconds: float | None) -> str:
    """A time in a row; nothing for None."""
    return "" if seconds is None else f"{seconds * 1e3:,.3f} ms"


def _pipeline_row(row: PipelineRow) -> Row:
    """One figure of a pipeline, as text."""

    def told(value: float | None) -> str:
        if value is None:
            return ""
        if row.what.endswith(", s"):
            return milliseconds(value)
        if row.what.startswith(("bubble", "utilisation")):
            return f"{value:.1%}"
        return f"{value:,.0f}" if "bytes" in row.what else f"{value:.4g}"

    what = row.what.removesuffix(", s")
    return Row(f"pipeline: {what}", told(row.measured), told(row.predicted), told(row.formula))
