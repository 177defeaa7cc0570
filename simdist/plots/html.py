"""HTML: a timeline as one page for any browser: zoom, pan, hover. It needs no network and no server.

The layout is computed here, by the same rules as for the picture; the page's own program, in the folder `page`,
draws the visible part of it on a canvas.
"""

import json
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

import numpy as np
from matplotlib.colors import to_hex

from simdist.arrays import CATEGORIES
from simdist.errors import ArgumentError, require_kind
from simdist.plots import style
from simdist.plots.boxes import STRIP, Box, boxes, words
from simdist.plots.file import writing
from simdist.plots.memory import COLOURS
from simdist.plots.view import View, finding
from simdist.trace import Span, Trace
from simdist.trace.kind import COMMUNICATING, COMPUTING
from simdist.trace.late import late
from simdist.trace.match import match
from simdist.trace.memory import remembered, within

__all__ = ["MOST_RANKS", "MOST_SPANS", "Page", "timeline_page"]

MOST_RANKS, MOST_SPANS = 100_000, 500_000
"""With more than these the page is slow to open."""

_TEXTS = ("stream", "name", "context", "detail")
_PROGRAM = ("record.js", "drawing.js", "reader.js")


class Page:
    """An HTML page; a notebook displays it when it is a cell's last line.

    Attributes:
        html: all of it.
        height: in a notebook, in pixels.
    """

    def __init__(self, html: str, height: int) -> None:
        self.html = html
        self.height = height

    def save(self, path: str | Path) -> None:
        """Write it to a file.

        Raises:
            DataError: it cannot be written there.
        """
        with writing(Path(path)):
            Path(path).write_text(self.html, encoding="utf-8")

    def __repr__(self) -> str:
        return f"<a page of {style.size(len(self.html), 2)}: save() it, and open it in a browser>"

    def _repr_html_(self) -> str:
        look = f"width: 100%; height: {self.height}px; border: 1px solid {style.FAINT}"
        return f'<iframe srcdoc="{escape(self.html)}" sandbox="allow-scripts" style="{look}"></iframe>'


def timeline_page(
    trace: Trace, *, ranks: Sequence[int] | None = None, start_s: float | None = None, end_s: float | None = None
) -> Page:
    """The timeline of a run as an interactive page; below each rank its memory by category, if recorded.

    Args:
        ranks: which to show, in this order; all if not given.
        start_s, end_s: leave out everything before and after, on the trace's clock.

    Raises:
        ArgumentError: there is no such rank, nothing to show, or more than MOST_RANKS ranks or MOST_SPANS spans.
    """
    require_kind("trace", trace, Trace, "sd.run(…).trace")
    ranks = range(trace.ranks) if ranks is None else ranks
    if len(ranks) > MOST_RANKS:
        raise ArgumentError(f"{len(ranks):,} ranks are more than {MOST_RANKS:,}; show fewer ranks")
    view = View.of(trace, ranks, start_s, end_s, style.PAGE)
    if len(view.indices) > MOST_SPANS:
        raise ArgumentError(f"{len(view.indices):,} spans are more than {MOST_SPANS:,}; show fewer ranks, or less time")
    text = finding(view)
    memories = {row[0] for row in view.rows} & set(remembered(trace))
    page = Template(_read("timeline.html")).substitute(
        title=escape(text),
        ink=style.INK,
        data=_inert(json.dumps(_content(view), separators=(",", ":"), allow_nan=False, default=np.generic.item)),
        program="\n".join(map(_read, _PROGRAM)),
    )
    return Page(page, height=min(720, 150 + 40 * len(view.rows) + 56 * len(memories)))


def _read(name: str) -> str:
    return (files("simdist.plots") / "page" / name).read_text(encoding="utf-8")


def _inert(text: str) -> str:
    """JSON that cannot end the HTML element around it."""
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


class _Texts(dict[str, int]):
    """A number for each text, in the order in which they are first asked for."""

    def __missing__(self, text: str) -> int:
        return self.setdefault(text, len(self))


def _content(view: View) -> dict[str, Any]:
    """All data of the page: spans by column, where and how each is drawn, and which sends and receives match."""
    spans = [view.trace.spans[i] for i in view.indices]
    places = {index: k for k, index in enumerate(view.indices)}
    found = boxes(spans)
    looks = {box: n for n, box in enumerate(dict.fromkeys(found))}
    texts = _Texts({"": 0})
    columns, memory = _columns(spans, texts), _memory(view, texts)
    return {
        "start_s": view.start_s,
        "end_s": view.end_s,
        "rows": [{"rank": rank, "label": f"rank {rank}" if stream == "main" else stream} for rank, stream in view.rows],
        "spans": columns,
        "row": [view.rows[s.rank, s.stream] for s in spans],
        "look": [looks[box] for box in found],
        "looks": [box._asdict() for box in looks],
        "messages": [(places[i], places[j]) for i, j in match(view.trace.spans) if i in places and j in places],
        "late_s": {places[i]: end - start for i, (start, end) in late(view.trace.spans).items() if i in places},
        "memory": memory,
        "categories": [{"name": name, "colour": COLOURS[name]} for name in CATEGORIES],
        "texts": list(texts),
        "strip": STRIP,
        "ink": style.INK,
        "faint": style.FAINT,
        "colours": {kind: _colours(kind) for kind in (*COMPUTING, *COMMUNICATING, "disk", "other")},
        "key": _key(found, memory),
    }


def _columns(spans: Sequence[Span], texts: _Texts) -> dict[str, list[Any]]:
    """The fields of all spans, each as a list; texts by number."""
    columns: dict[str, list[Any]] = {name: [span[i] for span in spans] for i, name in enumerate(Span._fields)}
    return columns | {name: [texts[text] for text in columns[name]] for name in _TEXTS}


def _memory(view: View, texts: _Texts) -> dict[int, dict[str, Any]]:
    """The memory of each rank by category, in the shown time."""
    shown = {rank for rank, _ in view.rows}
    found = {}
    for rank, every in remembered(view.trace).items():
        moments = within(every, view.start_s, view.end_s)
        if rank in shown and moments:
            found[rank] = {
                "time_s": [m.time_s for m in moments],
                "live": [[m.live[i] for m in moments] for i in range(len(CATEGORIES))],
                "at": [texts[m.at] for m in moments],
                "peak_bytes": max(m.total for m in moments),
            }
    return found


def _colours(kind: str) -> dict[str, str]:
    """The colours of a kind of span: its fill, the text on it, and the paler area below a strip."""
    fill = style.colour(kind)
    return {"fill": fill, "ink": style.ink_on(fill), "pale": to_hex(style.tint(fill, 0.22))}


def _key(found: Sequence[Box], memory: dict[int, dict[str, Any]]) -> list[dict[str, Any]]:
    """The key: the colours that occur, each with its name."""
    key = [{"word": word, "fill": style.colour(k), "hatched": k in style.HATCHED} for k, word in words(found).items()]
    for i, name in enumerate(CATEGORIES):
        if any(any(of_rank["live"][i]) for of_rank in memory.values()):
            key.append({"word": f"memory: {name}", "fill": COLOURS[name], "hatched": False})
    return key
