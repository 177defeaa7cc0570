"""Text: plans in words and tables."""

from collections.abc import Sequence

from simdist.cluster import Cluster
from simdist.nn.formulas import model_flops, num_parameters
from simdist.planning.execution import Execution
from simdist.planning.group import members
from simdist.planning.job import Job
from simdist.planning.papers import papers
from simdist.planning.search import Plan, Plans
from simdist.planning.step import sending_s
from simdist.planning.workbench import Workbench
from simdist.training.config import Config
from simdist.training.models import build, shape
from simdist.training.report import count
from simdist.words import aligned, counted

__all__ = ["details", "fit_text", "headline", "mesh_text", "overview", "run_text", "table", "zero_text"]

_LEGEND = (
    "8 of 2: eight micro-batches of two windows. Shares of a step: communication within layers, of which only ring",
    "attention's and, by overlap_degree, experts' and, by tp_overlap, linear maps' overlaps (layers), waiting for",
    "other stages (bubble), waiting for gradients and gathered weights, not overlapped (gradients), updating weights",
    "(update); the rest is computing.",
    "MFU: model FLOPs, with those of scores that a causal mask hides (PaLM's count), as a share of all devices' peak;",
    "above 100% where attention on long windows skips those scores.",
    "Memory: of arrays. Drivers, NCCL and fragmentation take some GB more.",
)
_AT_PEAK = (
    "The devices compute at their peak: on GPUs, published runs of dense models took 1.3 to 2.1 times as long;",
    "flops_efficiency and memory_efficiency in a cluster's file are what they reach.",
)
_FORMULAS = (
    "formula: the papers'. Of sending: all bytes over the slowest link; algorithms that keep most of them inside nodes",
    "take less. Of activations: all that the paper's model keeps, masks of dropout and scores before it included; in a",
    "pipeline, as many micro-batches as its schedule's paper says, each as much as a mean stage keeps here.",
)


def headline(config: Config, bench: Workbench) -> str:
    """The model, the batch and the ranks."""
    size = shape(config)
    parameters = build(config).parameters.size if size is None else num_parameters(size)
    device = bench.machine(config).device
    reached = f", of which programs reach {device.flops_efficiency:.0%}" if device.flops_efficiency < 1 else ""
    return (
        f"{config.model}, {parameters:,} parameters, {config.optimizer}, "
        f"{config.global_batch_size:,} windows of {config.context_bytes:,} tokens a step, "
        f"on {counted(bench.ranks, 'rank')} of {bench.cluster.name}, "
        f"each of {device.flops_per_s / 1e12:,.4g} TFLOP/s in {config.precision}{reached}"
    )


def overview(plans: Plans, bench: Workbench, top: int) -> list[str]:
    """A line for each mesh, the fastest first, and the meshes on which the model does not fit."""
    most = _bytes(bench.cluster.device.memory_bytes)
    lines = [f"{plans.tried:,} ways tried; for each mesh the fastest that fits in {most} a rank:"]
    if plans.best:
        more = len(plans.best) - top
        lines += ["", *table(plans.best[:top], bench, [f"and {more} more"] if more > 0 else [])]
    else:
        lines.append("none")
    if plans.too_large:
        least = plans.too_large[0]
        needs = f"{mesh_text(least)} needs least, {_bytes(least.num_bytes)} a rank"
        lines.append(f"too large for {counted(len(plans.too_large), 'mesh')}, of which {needs}")
    return lines


def table(plans: Sequence[Plan], bench: Workbench, below: Sequence[str] = ()) -> list[str]:
    """A line for each plan, then the lines of `below`, then a legend."""
    axes = ["dp", "tp", "pp", *(axis for axis in ("sp", "ep") if any(plan.sizes[axis] > 1 for plan in plans))]
    device = bench.cluster.device
    at_peak = device.flops_efficiency == device.memory_efficiency == 1
    marks = {
        "tp 4s: with sequence parallelism.": any(p.config.sequence_parallel for p in plans),
        "tp 4so: and by tp_overlap, tokens on their way while others are multiplied.": any(
            p.config.tp_overlap for p in plans
        ),
        "zero 3/8: stage 3, each 8 ranks sharding one model (hybrid sharding).": any(p.config.shards for p in plans),
        "sp 4u: Ulysses; sp 4: ring attention.": "sp" in axes,
        "interleaved-1f1b of 8: eight stages on each rank.": any(p.config.chunks for p in plans),
    }
    legend = [*(mark for mark, shown in marks.items() if shown), *_LEGEND, *(_AT_PEAK if at_peak else [])]
    return [*aligned([_head(axes), *(_line(plan, bench, axes) for plan in plans)]), *below, *legend]


def fit_text(num_bytes: float, cluster: Cluster, who: str = "the fullest rank") -> str:
    """Whether the memory of the fullest rank fits a device."""
    has = cluster.device.memory_bytes
    verdict = "it fits" if num_bytes <= has else "it does not fit"
    return f"{verdict}: {who} holds {_bytes(num_bytes)}, and a device has {_bytes(has)}"


def run_text(plan: Plan, bench: Workbench) -> str:
    """How long all steps take, and how many hours of a device that is."""
    steps, hours = plan.config.steps, plan.config.steps * plan.step.seconds / 3600
    tokens = f"{counted(steps, 'step')}, of {_digits(steps * _tokens(plan.config) / 1e9, 3)} billion tokens"
    took = f"{_digits(hours / 24, 3)} days, {_digits(hours * bench.ranks, 3)} device hours"
    return f"{tokens}, take {took}, if nothing fails"


def mesh_text(plan: Plan) -> str:
    """The axes of a plan's mesh with more than one rank."""
    sizes = {axis: plan.sizes[axis] for axis in ("dp", "tp", "pp", "sp", "ep")}
    return " x ".join(f"{axis} {size}" for axis, size in sizes.items() if size > 1) or "one rank"


def zero_text(config: Config) -> str:
    """The ZeRO stage, and the number of ranks that shard one model, if given."""
    return f"{config.zero or 0}{f'/{config.shards}' if config.shards else ''}"


def _head(axes: Sequence[str]) -> list[str]:
    what = ["zero", "schedule", "micro-batches", "recompute", "step", "tokens/s", "MFU"]
    return [*axes, *what, "layers", "bubble", "gradients", "update", "memory"]


def _line(plan: Plan, bench: Workbench, axes: Sequence[str]) -> list[str]:
    """The cells of a plan, in the columns of `_head`."""
    config, sizes, step = plan.config, plan.sizes, plan.step
    windows = config.global_batch_size // (sizes["dp"] * sizes["ep"] * config.micro_batches)
    sharded = "so" if config.tp_overlap else "s" if config.sequence_parallel else ""
    marks = {"tp": sharded, "sp": "u" if config.ulysses else ""}
    return [
        *(f"{sizes[axis]}{marks.get(axis, '')}" for axis in axes),
        zero_text(config),
        f"{config.schedule or '-'}{f' of {config.chunks}' if config.chunks else ''}",
        f"{config.micro_batches} of {windows}",
        config.recompute or "-",
        _time(step.seconds),
        f"{_tokens(config) / step.seconds:,.0f}",
        _mfu(config, bench, step.seconds),
        *(f"{part_s / step.seconds:.1%}" for part_s in plan.parts_s(bench)[1:]),
        _bytes(plan.num_bytes),
    ]


def _tokens(config: Config) -> int:
    """The tokens of a step; of an MLP, whose window predicts a single one, the windows."""
    return config.global_batch_size * (config.context_bytes if config.model == "gpt" else 1)


def _mfu(config: Config, bench: Workbench, seconds: float) -> str:
    size = shape(config)
    if size is None:
        return "-"
    needed = model_flops(size, config.global_batch_size)
    return f"{needed / seconds / bench.ranks / bench.machine(config).device.flops_per_s:.0%}"


def details(plan: Plan, bench: Workbench, execution: Execution | None = None) -> list[str]:
    """A plan's figures, beside the papers' formulas and, if it was executed, beside the measurements."""
    job, step = Job(plan.config, bench), plan.step
    said, rank = papers(job, step, plan.rank), members(job.sizes, "pp")[plan.rank]
    computing_s, within_s, bubble_s, gradients_s, update_s = plan.parts_s(bench)
    rows: list[list[str]] = [
        ["computing", "", _time(computing_s), _time(said.computing_s)],
        ["communication within layers", "", _time(within_s), _time(said.sharing_s)],
        ["bubble", "", _time(bubble_s), _time(said.bubble_s)],
        ["waiting for gradients, weights, not hidden", "", _time(gradients_s), ""],
        ["update", "", _time(update_s), ""],
        ["step", _time(execution and execution.seconds), _time(step.seconds), ""],
        ["sending gradients, weights, hidden or not", "", _time(sending_s(job, plan.rank)), _time(said.sending_s)],
    ]
    for category, num_bytes in plan.memory.items():
        took, formula = execution and execution.memory[rank][category], said.memory.get(category)
        rows.append([f"bytes of {category}", count(took), count(num_bytes), count(formula)])
    rows.append(["peak total", count(execution and execution.num_bytes[rank]), count(plan.num_bytes), ""])
    told = [["", "executed", "predicted", "formula"], *rows]
    return [*aligned(told if execution else [[row[0], *row[2:]] for row in told], left=1), *_FORMULAS]


# -- figures ------------------------------------------------------------------------------------------


def _time(seconds: float | None) -> str:
    """In seconds, or below one in milliseconds; rounded to picoseconds, to hide rounding errors; nothing for None."""
    if seconds is None:
        return ""
    seconds = round(seconds, 12)
    return f"{_digits(seconds, 4)} s" if seconds >= 1 else f"{_digits(seconds * 1e3, 4)} ms"


def _bytes(num_bytes: float) -> str:
    return f"{_digits(num_bytes / 1e9, 3)} GB" if num_bytes >= 1e9 else f"{_digits(num_bytes / 1e6, 3)} MB"


def _digits(value: float, digits: int) -> str:
    """This many significant digits, or all digits before the decimal point if there are more."""
    return f"{value:.{digits}g}" if value < 10**digits - 0.5 else f"{value:,.0f}"
