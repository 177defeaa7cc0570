"""Chrome: the record as a file in Chrome's trace format, for Perfetto.

A process per rank, a thread per lane of each of its streams (see Layout), an arrow from each send to the
receive that took it. Times on the tracks are in whole nanoseconds, so that adjacent slices touch exactly; each
slice also carries its span's exact fields, so nothing is lost.

Format: Trace Event Format, as JSON: {"traceEvents": [...], "otherData": {...}}.
"""

import json
import secrets
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any

from simdist.errors import ArgumentError, DataError, typed
from simdist.file import read_file
from simdist.trace.kind import kind
from simdist.trace.layout import Layout, nanoseconds
from simdist.trace.match import match
from simdist.trace.span import Span
from simdist.words import counted

__all__ = ["read", "write"]

_FORMAT = "simdist trace 1"
_LAST_S = 1e18  # far below overflow, even in nanoseconds
_quote = lru_cache(maxsize=4096)(json.dumps)  # a trace repeats few names a million times
_LINE = '{{"name":{},"cat":{},"ph":"X","pid":{},"tid":{},"ts":{},"dur":{},"args":{{{}}}}}'


def write(spans: Sequence[Span], ranks: int, path: Path) -> None:
    """Write the record to a file, atomically.

    Args:
        spans: in any order; of two with equal start and end a viewer shows the first as the outer one.
        ranks: the number of ranks that took part, including those without spans.

    Raises:
        DataError: it cannot be written there.
        ArgumentError: a time is infinite or NaN.
    """
    temporary = path.parent / f".{path.name}.{secrets.token_hex(4)}"
    try:
        with temporary.open("x", encoding="utf-8") as file:
            head = json.dumps({"format": _FORMAT, "ranks": ranks})
            file.write(f'{{"displayTimeUnit":"ns","otherData":{head},"traceEvents":[\n')
            for i, event in enumerate(_events(spans, ranks)):
                file.write(f",\n{event}" if i else event)
            file.write("\n]}\n")
        temporary.replace(path)
    except OSError as error:
        raise DataError(f"cannot write the trace {path}: {error.strerror}") from error
    except (OverflowError, ValueError) as error:
        raise ArgumentError(f"cannot write a trace with times that are not finite: {error}") from error
    finally:
        with suppress(OSError):  # it has been moved, or could not even be made
            temporary.unlink()


def _events(spans: Sequence[Span], ranks: int) -> Iterator[str]:
    """The file's events, one JSON object each: names, then slices, each followed by its end of an arrow, if any."""
    lanes = Layout.of(spans).lane
    threads = _threads(spans, lanes, ranks)
    yield from _names(threads, ranks)
    arrows = dict(chain.from_iterable(((i, n), (j, n)) for n, (i, j) in enumerate(match(spans), 1)))
    for i, s in enumerate(spans):
        tid = threads[s.rank, s.stream, lanes[i]]
        start, end = nanoseconds(s.start_s), nanoseconds(s.end_s)
        dur = (end - start) / 1000
        yield _LINE.format(_quote(s.name), _quote(kind(s.name)), s.rank, tid, start / 1000, dur, _fields(s))
        if i in arrows:  # right after its slice, so that readers that rely on order bind it to this one
            bound = '"ph":"s"' if s.name == "send" else '"ph":"f","bp":"e"'
            at = (start if s.name == "send" else max(start, end - 1)) / 1000
            yield f'{{"name":"message","cat":"message",{bound},"id":{arrows[i]},"pid":{s.rank},"tid":{tid},"ts":{at}}}'


def _threads(spans: Sequence[Span], lanes: Sequence[int], ranks: int) -> dict[tuple[int, str, int], int]:
    """A number per (rank, stream, lane), distinct from all others and from all ranks: viewers mix up equal ids."""
    seen = {"main": 0}  # streams in the order of their appearance
    for s in spans:
        seen.setdefault(s.stream, len(seen))
    order = {(s.rank, seen[s.stream], lane): s.stream for s, lane in zip(spans, lanes, strict=True)}
    return {(rank, order[rank, n, lane], lane): ranks + i for i, (rank, n, lane) in enumerate(sorted(order), 1)}


def _names(threads: dict[tuple[int, str, int], int], ranks: int) -> Iterator[str]:
    """The names of processes and threads in the viewer, and their order."""

    def meta(what: str, pid: int, tid: int, args: dict[str, Any]) -> str:
        return json.dumps({"name": what, "ph": "M", "pid": pid, "tid": tid, "args": args})

    for rank in range(ranks):
        yield meta("process_name", rank, ranks, {"name": f"rank {rank}"})
        yield meta("process_sort_index", rank, ranks, {"sort_index": rank})
    for (rank, stream, lane), tid in threads.items():
        name = f"{stream}, in flight {lane}" if lane else stream
        yield meta("thread_name", rank, tid, {"name": name})
        yield meta("thread_sort_index", rank, tid, {"sort_index": tid})


def _fields(s: Span) -> str:
    """The span's fields that its slice does not hold exactly, as the inside of a JSON object."""
    text = f'"stream":{_quote(s.stream)},"start_s":{float(s.start_s)!r},"end_s":{float(s.end_s)!r}'
    if s.bytes:
        text += f',"bytes":{int(s.bytes)}'
    if s.peer != -1:
        text += f',"peer":{int(s.peer)}'
    if s.tag:
        text += f',"tag":{int(s.tag)}'
    if s.context:
        text += f',"context":{_quote(s.context)}'
    if s.micro_batch != -1:
        text += f',"micro_batch":{int(s.micro_batch)}'
    if s.detail:
        text += f',"detail":{json.dumps(s.detail)}'
    return text


def read(path: Path) -> tuple[list[Span], int]:
    """The spans that `write` wrote to a file, exactly and in the same order, and the number of ranks.

    Raises:
        DataError: it cannot be read, or is not a simdist trace.
    """
    text = read_file(path, "the trace")
    try:
        content = json.loads(text, object_hook=_unpack)
        if not isinstance(content, dict):
            raise TypeError(f"it is {typed(content)}, not an object")
        header = content["otherData"]
        if header["format"] != _FORMAT:
            raise ValueError(f"its format is {header['format']!r}, not {_FORMAT!r}")
        events, ranks = content["traceEvents"], header["ranks"]
        spans = _checked(events, ranks)
        if ranks > len(events):  # each rank has its name; statistics take memory for every rank
            raise ValueError(f"its number of ranks is {ranks}, but it has only {counted(len(events), 'event')}")
        return spans, ranks
    except KeyError as error:
        raise DataError(f"{path} is not a trace of simdist's: it has no {error}") from error
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise DataError(f"{path} is not a trace of simdist's: {error}") from error


def _unpack(item: dict[str, Any]) -> Any:
    """The span of a slice; None for other events. At once, since a million dictionaries would take too much memory."""
    if "ph" not in item:
        return item
    if item["ph"] != "X":
        return None
    a = item["args"]
    return Span(
        rank=int(item["pid"]),
        stream=sys.intern(a["stream"]),
        name=sys.intern(item["name"]),
        start_s=float(a["start_s"]),
        end_s=float(a["end_s"]),
        bytes=int(a.get("bytes", 0)),
        peer=int(a.get("peer", -1)),
        tag=int(a.get("tag", 0)),
        context=sys.intern(a.get("context", "")),
        micro_batch=int(a.get("micro_batch", -1)),
        detail=str(a.get("detail", "")),
    )


def _checked(events: Iterable[Any], ranks: object) -> list[Span]:
    """The spans among the events, after a check of their ranks and times."""
    if not isinstance(ranks, int) or ranks < 1:
        raise ValueError(f"its number of ranks is {ranks!r}")
    spans = [event for event in events if isinstance(event, Span)]
    for s in spans:
        if not 0 <= s.rank < ranks:
            raise ValueError(f"it has a span of rank {s.rank}, but its ranks are 0 to {ranks - 1}")
        if not -1 <= s.peer < ranks:
            raise ValueError(f"it has a message of rank {s.peer}, but its ranks are 0 to {ranks - 1}")
        if not (abs(s.start_s) < _LAST_S and abs(s.end_s) < _LAST_S):  # nor is nan
            raise ValueError(f"it has a span from {s.start_s} s to {s.end_s} s")
        if s.end_s < s.start_s:
            raise ValueError(f"it has a span that ends at {s.end_s} s, before its start at {s.start_s} s")
    return spans
