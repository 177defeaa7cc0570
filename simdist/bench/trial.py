"""Trial: one call of a collective, with its result checked against NumPy and its traffic against `cost`.

Rank r's input follows from the trial and r alone, so every rank can compute what it must get.
"""

import hashlib
from collections.abc import Iterable
from functools import lru_cache
from functools import reduce as fold
from typing import Any, NamedTuple

import numpy as np

from simdist import collectives
from simdist.arrays import Array, Meter, metered, moved, on_host, partition, reduction
from simdist.collectives import cost
from simdist.collectives.registry import find
from simdist.comm import Communicator
from simdist.errors import ArgumentError
from simdist.trace import Span
from simdist.trace.kind import COLLECTIVES
from simdist.words import counted, listed

__all__ = [
    "INTO",
    "OPERATIONS",
    "REDUCING",
    "ROOTED",
    "Outcome",
    "Traffic",
    "Trial",
    "contribution",
    "expected",
    "outcome",
    "perform",
    "require_right",
]

OPERATIONS = tuple(name for name in COLLECTIVES if name != "barrier")
"""The collectives that move an array."""
REDUCING = ("all_reduce", "reduce_scatter", "reduce")
ROOTED = ("broadcast", "reduce", "scatter", "gather")
INTO = ("all_gather", "all_to_all")
"""Those that take an array for the result, if the caller has one."""
_CHECKED = 10_007
"""Items of the array with which an algorithm is checked before it is timed: not a multiple of any number of ranks."""


class Trial(NamedTuple):
    """One call of a collective.

    Attributes:
        operation, algorithm: "all_reduce", "ring".
        length: items of the whole array; for all_to_all of one row, of which there is one per rank.
        dtype, op, root: as for the collectives; ignored if the operation has no op or root.
    """

    operation: str
    algorithm: str
    length: int
    dtype: str = "float64"
    op: str = "sum"
    root: int = 0

    def told(self) -> str:
        """What distinguishes it from other trials of its algorithm: "length 2, int64, sum, root 1"."""
        op = [self.op] if self.operation in REDUCING else []
        root = [f"root {self.root}"] if self.operation in ROOTED else []
        return ", ".join([f"length {self.length}", self.dtype, *op, *root])


class Traffic(NamedTuple):
    """What one rank sent and reduced, and read and wrote in shared memory."""

    messages: int
    sent_bytes: int
    reduced_bytes: int
    read_bytes: int
    written_bytes: int


class Outcome(NamedTuple):
    """The outcome of a trial on one rank.

    Attributes:
        error: the largest difference from NumPy, relative to NumPy's value for floats; infinite if shape
            or dtype is wrong.
        limit: the largest acceptable error: 0, except for rounding in sums and products of floats.
        counted, promised: the traffic on the record, and as given by `cost`.
        digest: a fingerprint of the result; empty if this rank gets none.
    """

    error: float
    limit: float
    counted: Traffic
    promised: Traffic
    digest: str

    @property
    def good(self) -> bool:
        """Whether result and traffic are correct."""
        return self.error <= self.limit and self.counted == self.promised


def contribution(trial: Trial, ranks: int, rank: int) -> Array:
    """The input of `rank`: random, with a share of zeros for the logical operations."""
    return _drawn(_shape(trial, ranks), trial.dtype, trial.op in ("lor", "land"), ranks, rank).copy()


def _shape(trial: Trial, ranks: int) -> tuple[int, ...]:
    return (ranks, trial.length) if trial.operation == "all_to_all" else (trial.length,)


@lru_cache(maxsize=1024)  # the same for all algorithms
def _drawn(shape: tuple[int, ...], dtype: str, logical: bool, ranks: int, rank: int) -> Array:
    """Random numbers, which callers must not change."""
    random = np.random.default_rng([rank, shape[-1], ranks])
    kind = np.dtype(dtype).kind
    x: Array
    if kind == "b":
        x = random.random(shape) < 0.5
    elif kind == "i":
        x = random.integers(-999, 1000, shape)
    else:  # near one, so that a product neither overflows nor vanishes in float16
        x = random.uniform(0.75, 1.5, shape) ** min(1, 16 / ranks)
    if logical:
        x = x * (random.random(shape) < 0.6)
    return x.astype(dtype)


def expected(trial: Trial, ranks: int, rank: int) -> Array | None:
    """The result that `rank` must get, by NumPy; None if it gets none."""
    if trial.operation in ("reduce", "gather") and rank != trial.root:
        return None
    whole = _whole(trial._replace(algorithm=""), ranks)
    match trial.operation:
        case "reduce_scatter" | "scatter":
            return whole[partition(trial.length, ranks)[rank]]
        case "all_to_all":
            return whole[:, rank]
    return whole


@lru_cache(maxsize=128)  # the same for all ranks and algorithms
def _whole(trial: Trial, ranks: int) -> Array:
    """The results of all ranks together; for all_to_all the input of each, by rows."""
    puts = [contribution(trial, ranks, r) for r in range(ranks)]
    whole: Array
    match trial.operation:
        case "all_reduce" | "reduce" | "reduce_scatter":
            whole = fold(reduction(trial.op).ufunc, puts).astype(trial.dtype)
        case "all_gather" | "gather":
            cuts = partition(trial.length, ranks)
            whole = np.concatenate([x[cut] for x, cut in zip(puts, cuts, strict=True)])
        case "all_to_all":
            whole = np.stack(puts)
        case _:
            whole = puts[trial.root]
    whole.flags.writeable = False
    return whole


def perform(trial: Trial, comm: Communicator, x: Array, out: Array | None = None) -> Array | None:
    """Call the collective on x, which is overwritten; returns this rank's result.

    Args:
        out: where all_gather and all_to_all put it; new memory if not given.
    """
    call: Any = getattr(collectives, trial.operation)
    options: dict[str, Any] = {"algorithm": trial.algorithm}
    if trial.operation in ROOTED:
        options["root"] = trial.root
    if trial.operation in REDUCING:
        options["op"] = trial.op
    if trial.operation in INTO:
        options["out"] = out
    given = x
    if trial.operation in ("all_gather", "gather"):
        given = x[partition(trial.length, comm.size)[comm.rank]].copy()
    elif trial.operation == "scatter" and comm.rank != trial.root:
        given = None
    returned = call(given, comm, **options)
    if trial.operation in ("all_reduce", "broadcast", "reduce"):  # in place
        return None if trial.operation == "reduce" and comm.rank != trial.root else x
    return returned


def _poisoned(trial: Trial, ranks: int) -> Array | None:
    """The array for the result, if the caller provides it, filled with values that occur in no result: data left by an
    earlier trial could hide that an algorithm forgot to write.
    """
    if trial.operation not in INTO:
        return None
    kind = np.dtype(trial.dtype).kind
    poison = np.nan if kind == "f" else np.iinfo(trial.dtype).min if kind == "i" else True  # no bool is impossible
    return np.full(_shape(trial, ranks), poison, trial.dtype)


def outcome(trial: Trial, comm: Communicator) -> Outcome:
    """Perform the trial, on the communicator's device, and compare. All ranks of comm must call it.

    Where ranks share a GPU, one rank works for all, so the bytes that each rank moves are not compared; nor where nodes
    matter to the algorithm, and its ranks do not fill one after the other, as its cost assumes.
    """
    x = moved(contribution(trial, comm.size, comm.rank), comm.device.kind)
    out = _poisoned(trial, comm.size)
    out = None if out is None else moved(out, comm.device.kind)
    before = len(comm.recorder.rows)
    meter = Meter()
    with metered(meter):
        got = perform(trial, comm, x, out)
    spans = [Span._make(row) for row in comm.recorder.rows[before:]]
    counted = _counted(spans, meter.flops * x.dtype.itemsize)
    led = comm.device.path == "ipc" and not find(trial.operation, trial.algorithm).by_messages
    scattered = not comm.nodes.filled and _minds_nodes(trial, comm)
    got = None if got is None else on_host(got)
    return Outcome(
        error=_error(got, expected(trial, comm.size, comm.rank)),
        limit=_limit(trial, comm.size),
        counted=counted,
        promised=counted if led or scattered else _promised(trial, comm, comm.rank, comm.nodes.most),
        digest="" if got is None else hashlib.sha256(got.tobytes()).hexdigest()[:16],
    )


def require_right(operation: str, names: Iterable[str], comm: Communicator) -> None:
    """Check the result of each of these algorithms once, before it is timed. All ranks must call it.

    Raises:
        ArgumentError: one gives some rank another result than NumPy; on all ranks.
    """
    length = _CHECKED // comm.size if operation == "all_to_all" else _CHECKED
    for name in names:
        trial = Trial(operation, name, length, "float32")
        found = outcome(trial, comm)
        wrong = [r for r, note in enumerate(comm.exchange("wrong" if found.error > found.limit else "")) if note]
        if wrong:
            raise ArgumentError(
                f"{operation} {name} on {counted(comm.size, 'rank')} gives {listed(wrong)} a wrong result "
                f"({trial.told()}), so it is not timed; simdist verify {operation} --algorithms {name} shows more"
            )


def _error(got: Array | None, want: Array | None) -> float:
    if got is None or want is None:
        return 0.0 if got is want else np.inf
    if got.shape != want.shape or got.dtype != want.dtype:
        return np.inf
    if want.dtype.kind != "f":
        return float(np.abs(got.astype(np.float64) - want.astype(np.float64)).max(initial=0.0))
    different = got != want
    if not np.isfinite(got).all():
        return np.inf
    off = np.abs(got[different].astype(np.float64) - want[different])
    return float((off / np.maximum(np.abs(want[different]), np.finfo(want.dtype).tiny)).max(initial=0.0))


def _limit(trial: Trial, ranks: int) -> float:
    rounds = trial.operation in REDUCING and trial.op in ("sum", "prod") and trial.dtype.startswith("float")
    return 2 * ranks * float(np.finfo(trial.dtype).eps) if rounds else 0.0


def _counted(spans: Iterable[Span], reduced_bytes: int) -> Traffic:
    """The traffic on the record."""
    sent, moved = [], [(0, 0)]
    for span in spans:
        if span.name == "send":
            sent.append(span.bytes)
        elif span.name == "move":
            read, written = (int(part.split()[0]) for part in span.detail.split(",")[:2])
            moved.append((read, written))
    return Traffic(len(sent), sum(sent), reduced_bytes, *map(sum, zip(*moved, strict=True)))


def _minds_nodes(trial: Trial, comm: Communicator) -> bool:
    """Whether the cost of some rank depends on how many ranks share a node."""
    long = trial._replace(length=max(trial.length, comm.size))
    return any(_promised(long, comm, r, comm.nodes.most) != _promised(long, comm, r, 1) for r in range(comm.size))


def _promised(trial: Trial, comm: Communicator, rank: int, ranks_per_node: int) -> Traffic:
    itemsize = np.dtype(trial.dtype).itemsize
    rows = comm.size if trial.operation == "all_to_all" else 1
    options = find(trial.operation, trial.algorithm).options
    found = cost(
        trial.operation,
        trial.algorithm,
        ranks=comm.size,
        num_bytes=trial.length * rows * itemsize,
        rank=rank,
        root=trial.root,
        itemsize=itemsize,
        ranks_per_node=0 if comm.num_nodes == 1 else ranks_per_node,
        **({"staged": True} if "staged" in options else {}),  # a trial's arrays are in private memory
    )
    return Traffic(*found[1:])
