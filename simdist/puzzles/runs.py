"""Runs: an answer that moves arrays, run on several numbers of ranks, and its messages counted."""

import reprlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from simdist.arrays import Array
from simdist.cluster import Cluster
from simdist.launch import Run
from simdist.puzzles.trial import PLAIN, Failed, trial
from simdist.puzzles.verdict import Finding, at_most
from simdist.trace.kind import COLLECTIVES
from simdist.words import counted

__all__ = [
    "Runs",
    "bounded",
    "busiest_bytes",
    "busiest_messages",
    "carried",
    "compare",
    "digits",
    "elapsed",
    "exchanged",
    "most_collectives",
    "on_ranks",
    "ones",
    "pair",
    "right",
]

Runs = Mapping[int, Run]
"""Runs by number of ranks."""

Case = Callable[[int], tuple[Sequence[Array], Sequence[Array]]]
"""Given a number of ranks: what each starts with, and what each must end with."""


def exchanged(
    answer: Callable[..., Any],
    ranks: Sequence[int],
    case: Case,
    *,
    returns: bool = False,
    sums: bool = False,
    cluster: Cluster = PLAIN,
    why: str = "",
    of: str = "",
) -> Runs:
    """Run answer(x, comm) on each number of ranks, and compare what each rank ends with.

    Args:
        returns: whether the result is what it returns; else it is what it leaves in x.
        sums: whether rank r contributes 10**r, so that the digits of a wrong sum show the cause.
        why: a possible cause of a wrong result.
        of: what to add about x, such as ", of 23 items".

    Raises:
        Failed: it raised or hung, or a result is wrong.
    """
    runs = {}
    for p in ranks:
        given, expected = case(p)

        def program(comm: Any, given: Sequence[Array] = given) -> Any:
            x = given[comm.rank].copy()
            y = answer(x, comm)
            return y if returns else x

        runs[p] = trial(program, p, cluster)
        for rank, (found, wanted) in enumerate(zip(runs[p].results, expected, strict=True)):
            as_it_was = not returns and np.array_equal(found, given[rank])
            what = f"what rank {rank} of {p} ends with{of}"
            compare(what, found, wanted, _unchanged(runs[p], rank) if as_it_was else why, sums and not as_it_was)
    return runs


def _unchanged(run: Run, rank: int) -> str:
    """Why x may be as it was."""
    if not run.trace.statistics()[rank].received.num_spans:
        return "x is as it was: no message arrived here"
    return (
        "x is as it was, though a message arrived: x[:] = y changes x, x = y only rebinds the name\n"
        "or did the sender overwrite the array before it was sent?"
    )


def compare(what: str, found: Any, wanted: Array, why: str = "", sums: bool = False) -> None:
    """Raise Failed unless these are equal, with the items where they first differ."""
    if not isinstance(found, np.ndarray):
        why = "your function must return the array" if found is None else ""
        if isinstance(found, list):
            why = "np.concatenate joins a list of arrays"
        raise Failed(what, reprlib.repr(found), f"an array of shape {np.shape(wanted)}", why)
    if found.shape != wanted.shape:
        why = "it has as many items: reshape it" if found.size == wanted.size else ""
        raise Failed(what, f"an array of shape {found.shape}", f"shape {wanted.shape}", why)
    if found.dtype != wanted.dtype:
        why = "np.empty_like(x), or dtype=x.dtype, makes an array of the same type as x"
        raise Failed(what, f"an array of {found.dtype}", f"{wanted.dtype}", why)
    wrong = np.flatnonzero(~np.isclose(found, wanted, rtol=1e-9, atol=1e-12))
    if len(wrong):
        first = int(wrong[0])
        near = slice(max(0, first - 1), first + 5)
        items = f"items {near.start} to {min(near.stop, wanted.size) - 1}"
        told = (digits(found, wanted, first) if sums else "") or why
        with np.printoptions(linewidth=200):
            shown = f"{found.reshape(-1)[near]} in {items}, {len(wrong)} of {found.size} wrong"
            raise Failed(what, shown, str(wanted.reshape(-1)[near]), told)


def pair(found: Any, named: str) -> tuple[Any, Any]:
    """The two things that an answer returns; raises Failed if it returns anything else than these, as `named`."""
    if not (isinstance(found, (tuple, list)) and len(found) == 2):
        raise Failed("what is returned", reprlib.repr(found), named)
    return found[0], found[1]


def digits(found: Array, wanted: Array, place: int) -> str:
    """What the digits of a wrong sum of powers of ten say."""
    value, target = int(found.reshape(-1)[place]), int(wanted.reshape(-1)[place])
    if value < 0:
        return ""
    p = len(str(target))
    if value == target // p:
        return f"item {place} is the sum divided by {p}"
    times: dict[int, list[int]] = {}
    for r in range(p):
        times.setdefault(value // 10**r % 10, []).append(r)
    told = [
        f"{'' if n == 0 else f'{n} times '}{'nothing of' if n == 0 else 'that of'} rank {', '.join(map(str, whose))}"
        for n, whose in sorted(times.items())
        if n != 1
    ]
    return f"item {place} contains {' and '.join(told)}, but each should be added once" if told else ""


def ones(p: int) -> int:
    """The sum of 10**r over p ranks: 1111 for four."""
    return int("1" * p)


# -- what the record says -------------------------------------------------------------------------------


def bounded(
    runs: Runs,
    what: str,
    value: Callable[[Run], float],
    limit: Callable[[int], float],
    unit: str = "",
    why: str = "",
) -> Finding:
    """The first number of ranks on which a value is beyond its limit; if there is none, the last."""
    findings = [at_most(f"{what}, on {counted(p, 'rank')}", value(run), limit(p), unit, why) for p, run in runs.items()]
    return next((finding for finding in findings if not finding.good), findings[-1])


def busiest_bytes(run: Run) -> int:
    """The most that any rank sends."""
    return max(rank.sent.num_bytes for rank in run.trace.statistics())


def busiest_messages(run: Run) -> int:
    """The most messages that any rank sends, or receives."""
    return max(max(rank.sent.num_spans, rank.received.num_spans) for rank in run.trace.statistics())


def most_collectives(run: Run) -> int:
    """The most collectives that any rank takes part in."""
    return max(Counter(s.rank for s in run.trace if s.name.partition(" ")[0] in COLLECTIVES).values(), default=0)


def elapsed(run: Run) -> float:
    """Seconds from the start of the first rank to the end of the last."""
    return run.elapsed_s


def on_ranks(counts: Iterable[int]) -> str:
    """All numbers of ranks of which something holds: "on 1, 2, 4 ranks"."""
    return f"on {', '.join(map(str, counts))} ranks"


def right(runs: Runs, what: str) -> Iterator[Finding]:
    """Findings: the result is right, and no rank has called an existing collective."""
    yield Finding(True, what, "right", on_ranks(runs))
    used = sorted({s.name for run in runs.values() for s in run.trace if s.name.partition(" ")[0] in COLLECTIVES})
    found = ", ".join(used) or "send, recv and the like"
    why = "write these yourself, with comm.send, recv, sendrecv"
    yield Finding(not used, "written with", found, "", why)


def carried(runs: Runs, least: Callable[[int], float], first: int = 0) -> Finding:
    """A finding: every rank from `first` on has received at least the bytes that it cannot know by itself."""
    for p, run in runs.items():
        received = min(rank.received.num_bytes for rank in run.trace.statistics()[first:])
        if received < least(p) * (1 - 1e-9):
            why = "data did not travel by messages alone: perhaps a variable that all ranks share?"
            what = f"bytes that each rank receives, on {counted(p, 'rank')}"
            return Finding(False, what, f"{received:,}", f"at least {least(p):,.0f}, which it cannot know itself", why)
    return Finding(True, "carried by", "only messages", "")
