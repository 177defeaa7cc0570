"""Draw the picture of the project's README: a collective, a training step, and figures from three sources.

python notebooks/pictures/at_a_glance.py
"""

from io import BytesIO
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from PIL import Image

import simdist as sd
from simdist.arrays import Ledger, phantom, recorded
from simdist.cluster import preset
from simdist.collectives import all_reduce, cost, formula
from simdist.collectives.watch import watched
from simdist.comm import Mesh
from simdist.nn import Shape, gpt
from simdist.parallel import DataParallel, Recipe, ZeRO
from simdist.parallel.pipeline import Pipeline, executed, modelled_costs, paper, schedule, simulate, split, stage_times
from simdist.parallel.precision import precision
from simdist.parallel.zero.formulas import kept, paper_bytes
from simdist.plots import collective_steps, style, timeline

H100 = preset("h100")
MIXED = Recipe("adamw", precision=precision("bf16"))
SHAPE = Shape(layers=12, width=2048, heads=16, context=1024)
DOTS_PER_INCH = 160
COLOURS = 64

Row = tuple[str, str, str, str]


def tokens(shape: Shape) -> object:
    """A text as a phantom array."""
    return phantom((1, shape.context + 1), np.uint8)


def ring(ranks: int = 8, items: int = 2_000_000) -> Row:
    """The row of a ring all-reduce: the bytes that a rank sends."""
    run = sd.run(lambda comm: all_reduce(np.ones(items, np.float32), comm, algorithm="ring"), ranks)
    given = {"ranks": ranks, "num_bytes": 4 * items}
    found = (
        max(rank.sent.num_bytes for rank in run.trace.statistics()),
        cost("all_reduce", "ring", **given).sent_bytes,
        formula("all_reduce", "ring", **given).bytes,
    )
    return f"Ring all-reduce of {4 * items / 1e6:g} MB on {ranks} ranks: a rank sends", *(
        f"{n / 1e6:.2f} MB" for n in found
    )


def zero(ranks: int = 8) -> Row:
    """The row of ZeRO 3: the memory of a rank."""

    def program(comm):
        ledger = Ledger(comm.clock)
        with recorded(ledger):
            method = ZeRO(gpt(SHAPE), comm, MIXED, 0, 3, memory=phantom)
            method.train([tokens(SHAPE)], 1.0, 1e-3)
        return sum(ledger.peaks[kind] for kind in ("parameters", "gradients", "optimizer state"))

    exact = kept(gpt(SHAPE), MIXED, ranks, 3)
    weights = gpt(SHAPE).parameters.size
    measured = sd.run(program, ranks, cluster=H100).results[0]
    found = measured, exact.total - exact.communication, paper_bytes(weights, ranks, 3)
    return f"ZeRO 3 of {weights / 1e6:.0f} M weights on {ranks}: a rank keeps", *(f"{n / 2**20:.1f} MiB" for n in found)


def pipeline(name: str, micro_batches: int = 8) -> Row:
    """The row of a pipeline schedule: its bubble."""
    costs = modelled_costs(gpt(SHAPE), 1, SHAPE.context + 1, H100.device, MIXED.precision.dtype)
    weight = [layer.total for layer in costs]
    one = schedule(name, stages=4, micro_batches=micro_batches)

    def program(comm):
        method = Pipeline(gpt(SHAPE), Mesh(comm, pp=4), MIXED, 0, one, costs=weight, memory=phantom)
        method.train([tokens(SHAPE)] * micro_batches, 1.0, 1e-3)

    times = stage_times(costs, split(weight, one.num_stages))
    measured = executed(one, sd.run(program, 4, cluster=H100).trace)
    found = measured.own_bubble_rate, simulate(one, times).own_bubble_rate, paper(one, times).bubble_rate
    return f"{name.upper()} of 4 stages, {micro_batches} micro-batches: the bubble is", *(
        f"{rate:.1%}" for rate in found
    )


def step() -> Figure:
    """The timeline of a data parallel training step."""

    def program(comm):
        method = DataParallel(gpt(SHAPE), comm, MIXED, 0, "ring", bucket_bytes=1 << 27, memory=phantom)
        comm.barrier()
        with comm.span("step"):
            method.train([tokens(SHAPE)], 1.0, 1e-3)

    trace = sd.run(program, 4, cluster=H100).trace
    return timeline(trace, ranks=[0, 1], start_s=next(s.start_s for s in trace if s.name == "step"))


def table(rows: list[Row]) -> Figure:
    """A table of figures, each from three sources."""
    with style.styled():
        fig = style.figure(style.PAGE, 0.45 + 0.19 * (len(rows) + 1))
        ax = fig.subplots()
        ax.axis("off")
        ax.set(xlim=(0, 1), ylim=(len(rows) + 0.5, -0.5))
        for y, row in enumerate([("", "measured", "predicted", "formula"), *rows]):
            for x, word in zip((0.0, 0.58, 0.76, 1.0), row, strict=True):
                weight = "normal" if y else "bold"
                ax.text(x, y, word, ha="left" if x == 0 else "right", va="center", fontweight=weight)
        ax.axhline(0.5, color=style.INK, linewidth=0.6)
        style.title(fig, "Measured in the trace, predicted before the run, and by the papers' formulas")
    return fig


def main() -> None:
    """Draw all, one below the other."""
    figures = [collective_steps(watched("all_reduce", "ring", 4)), step()]
    figures.append(table([ring(), zero(), pipeline("1f1b"), pipeline("zb-h1")]))
    images = []
    for figure in figures:
        file = BytesIO()
        figure.savefig(file, dpi=DOTS_PER_INCH)
        images.append(Image.open(file).convert("RGB"))
    whole = Image.new("RGB", (max(i.width for i in images), sum(i.height for i in images)), "white")
    top = 0
    for image in images:
        whole.paste(image, (0, top))
        top += image.height
    out = Path(__file__).with_suffix(".png")
    whole.quantize(COLOURS, dither=Image.Dither.NONE).save(out, optimize=True)
    print(f"drawn: {out.name}, {out.stat().st_size / 1024:.0f} KiB")


if __name__ == "__main__":
    main()
