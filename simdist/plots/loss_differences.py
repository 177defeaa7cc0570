"""Loss differences: the curves of several runs in one picture, and their distance from the first run's."""

from collections.abc import Mapping, Sequence
from math import ceil, floor, isfinite, log10, nan
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from simdist.plots import style
from simdist.plots.records import require_each
from simdist.words import counted

__all__ = ["Losses", "loss_differences"]

_BAND: dict[str, Any] = {"color": style.FAINT, "linewidth": 5.0, "marker": "o", "markersize": 5.0}
_WORDS = {"train": "training", "validation": "validation"}


class Losses(NamedTuple):
    """The losses that a run logged at a step; nan where not measured."""

    step: int
    train: float
    validation: float


_Curve = dict[int, float]
_Curves = dict[str, _Curve]
"""By name of the run, losses by step."""


def loss_differences(
    runs: Mapping[str, Sequence[Losses]], *, unit: str = "nats a byte", width: float = style.PAGE
) -> Figure:
    """Loss over steps, in training and in validation; below, its absolute difference from the first run's.

    The first run is a broad band, so that curves on top of it can be seen. Differences are on a log scale, which
    cannot show zero. Validation that was not measured has no panel, nor have the differences of a single run.

    Args:
        runs: name -> its losses; the first is the one that all others are compared with.
        unit, width: of the loss; of the figure, in inches.

    Raises:
        ArgumentError: a run has no finite loss.
    """
    kinds = _kinds(runs)
    differences = {kind: _differences(next(iter(runs)), curves) for kind, curves in kinds.items()}
    every = [loss for curves in kinds.values() for curve in curves.values() for loss in curve.values()]
    sizes = [size for curves in differences.values() for curve in curves.values() for size in curve.values() if size]
    with style.styled():
        rows = [3, 2][: len(runs)]
        fig = style.figure(width, 1.2 + 0.48 * sum(rows))
        axes = fig.subplots(len(rows), len(kinds), sharex=True, sharey="row", height_ratios=rows, squeeze=False)
        for column, (kind, curves) in zip(axes.T, kinds.items(), strict=True):
            handles = _draw(column[0], {style.wrapped(name, width / 2 - 0.5, 7.5): of for name, of in curves.items()})
            style.losses(column[0], every)
            column[0].set_title(_WORDS[kind])
            column[-1].set_xlabel("step")
            column[-1].xaxis.set_major_locator(style.whole_numbers())
            for below in column[1:]:
                _draw(below, differences[kind])
                style.grid(below)
        axes[0, 0].set_ylabel(f"loss ({unit})")
        for below in axes[1:, 0]:
            below.set_ylabel("|difference|")
            below.set(**({"yscale": "log", "ylim": _decades(sizes)} if sizes else {"ylim": (0, 1), "yticks": [0]}))
        style.legend(fig, handles, _note(differences))
        style.title(fig, _finding(list(runs), differences))
    return fig


def _kinds(runs: Mapping[str, Sequence[Losses]]) -> dict[str, _Curves]:
    """The curves of each kind of loss that was measured."""
    kinds = {kind: {name: _finite(run, kind) for name, run in runs.items()} for kind in _WORDS}
    require_each(kinds["train"], "finite losses")
    return {kind: curves for kind, curves in kinds.items() if any(curves.values())}


def _finite(run: Sequence[Losses], kind: str) -> _Curve:
    """The finite losses of a run, by step."""
    found = {line.step: getattr(line, kind) for line in run}
    return {step: loss for step, loss in found.items() if isfinite(loss)}


def _differences(first: str, curves: _Curves) -> _Curves:
    """The absolute difference of each run from the first, at the steps of both; empty for the first itself."""
    base = curves[first]
    return {
        name: {step: abs(loss - base[step]) for step, loss in curve.items() if step in base and name != first}
        for name, curve in curves.items()
    }


def _draw(ax: Axes, curves: _Curves) -> list[Any]:
    """Draw a line for each run, the first as a band if there are others; zeros are left out."""
    handles: list[Any] = []
    bands = int(len(curves) > 1)
    for i, (name, curve) in enumerate(curves.items()):
        thin = style.series(i - bands) | {"linewidth": 0.9, "markersize": 2.4}
        look = _BAND if i < bands else thin
        handles += ax.plot(list(curve), [loss or nan for loss in curve.values()], label=name, **look)
    return handles


def _decades(sizes: Sequence[float]) -> tuple[float, float]:
    """The powers of ten around the sizes, so that the axis has at least one mark."""
    return 10.0 ** floor(log10(min(sizes)) - 0.05), 10.0 ** ceil(log10(max(sizes)) + 0.05)


def _note(differences: Mapping[str, _Curves]) -> str:
    """Names the runs that differ nowhere."""
    first, *others = differences["train"]
    found = {name: [d for curves in differences.values() for d in curves[name].values()] for name in others}
    same = [name for name, sizes in found.items() if sizes and not any(sizes)]
    return f"Bit-identical to {first}: {', '.join(same)}." if same else ""


def _finding(names: Sequence[str], differences: Mapping[str, _Curves]) -> str:
    """The picture in a sentence."""
    first, *others = names
    if not others:
        return f"{first}, without a run to compare it with"
    one = others[0] if len(others) == 1 else ""
    found = [
        (size, ("" if one else f"{name}'s ") + f"in {_WORDS[kind]} at step {step}")
        for kind, curves in differences.items()
        for name, curve in curves.items()
        for step, size in curve.items()
    ]
    words = f"The losses of {one or counted(len(others), 'run')}"
    if not found:
        return f"{words} and of {first} have no step in common"
    size, where = max(found)
    return f"{words} are up to {size:.2g} from {first}'s: {where}" if size else f"{words} equal {first}'s bit for bit"
