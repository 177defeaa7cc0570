"""The harness: one test, two worlds.

Under plain pytest a test's programs run on virtual ranks. Under `mpirun -n N python -m pytest` every rank
runs every test, and the programs run on real ranks. There the ranks meet after each program and after each
test, on a communicator of the harness's own, so that all of them see the same results and the same verdict:

    rank 0   | program |--.          .--| asserts |--.       .--  next test
    rank 1   | program |---> meet --<---| asserts |---> meet <--  next test
    rank 2   | program |--'          '--| asserts |--'       '--  next test

With `--device cuda` a program's ranks have their arrays on a GPU: what comes of `comm.empty`, of models, and of `xp`,
which is NumPy to everybody else. What a program returns is brought to the host.

A rank that fails while others are blocked inside the program cannot be met any more. It waits for them for
`GRACE_S`, then shows its traceback and ends the job.
"""

import builtins
import io
import json
import os
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

import numpy as np
import pytest

import simdist as sd
from simdist import errors
from simdist.arrays import moved, on_host
from simdist.comm.device import use_device
from simdist.comm.guard import guard

__all__ = ["GRACE_S", "RealRanks", "VirtualRanks", "pack", "placed", "unpack", "virtual", "xp"]

GRACE_S = float(os.environ.get("SIMDIST_GRACE_S", "10"))
"""How long a rank that failed waits for the others: less than the 30 s after which a blocked receive gives up."""


_NO_MEMORY = b"needs ipc, or an algorithm by messages"


class ArrayModule:
    """NumPy, whose new arrays lie on the device inside a program whose ranks have one.

    Attributes:
        device: where the ranks of all programs have their arrays, "cpu" or "cuda".
        path: how these come to other real ranks, one of PATHS.
        inside: how many programs are at work there.
    """

    def __init__(self) -> None:
        self.device, self.path = "cpu", "auto"
        self.inside = 0

    def __getattr__(self, name: str) -> Any:
        found = getattr(np, name)
        if not self.inside or name not in ("arange", "array", "asarray", "empty", "full", "ones", "zeros"):
            return found
        return lambda *args, **options: moved(found(*map(on_host, args), **options), "cupy")


xp = ArrayModule()


def placed(program: Callable[..., Any]) -> Callable[..., Any]:
    """The program, for ranks that have their arrays on the device that the tests are for."""

    @wraps(program)
    def run(comm: Any, *args: Any, **options: Any) -> Any:
        use_device(comm, xp.device, xp.path)
        xp.inside += 1
        try:
            return _brought(program(comm, *args, **options))
        finally:
            xp.inside -= 1

    return program if xp.device == "cpu" else run


def _brought(x: Any) -> Any:
    """A program's result, its arrays on the host."""
    match x:
        case tuple() if hasattr(x, "_fields"):
            return type(x)(*map(_brought, x))
        case list() | tuple():
            return type(x)(map(_brought, x))
        case dict():
            return {key: _brought(value) for key, value in x.items()}
    return on_host(x) if hasattr(x, "dtype") else x


class VirtualRanks:
    """Runs a test's programs on virtual ranks, in this process, as on one node unless it says otherwise."""

    real = False
    num_nodes = 1

    def __call__(self, program: Callable[..., Any], ranks: int, *args: Any, **options: Any) -> list[Any]:
        """program(comm, *args) on each of `ranks` ranks: its results, by rank. The options are those of sd.run."""
        return sd.run(placed(program), ranks, args=args, **options).results


virtual = VirtualRanks()
"""As the fixture `spmd`, but on virtual ranks alone: for sweeps that would keep real ones busy for long."""


class RealRanks:
    """Runs a test's programs on the first ranks of the job that this process is part of.

    Args:
        world: all ranks of the job.
    """

    real = True

    def __init__(self, world: Any) -> None:
        self.world = world
        self.rank, self.size, self.num_nodes = world.rank, world.size, world.num_nodes
        self._meeting = world.split(0, world.rank)

    def __call__(self, program: Callable[..., Any], ranks: int, *args: Any, check: bool = True, **_: Any) -> list[Any]:
        """program(comm, *args) on the first `ranks` ranks: the results of all of them, on every rank of the job.

        What one of them raises is raised on all. Results travel as JSON and arrays; tuples of any kind come
        back as tuples.
        """
        if ranks > self.size:
            pytest.skip(f"needs {ranks} ranks")
        group, told, error = self.world.split(0 if self.rank < ranks else None, self.rank), b"", None
        if group is not None:
            group.check, group.recorder.on = check, True
            group.recorder.rows.clear()
            try:
                told = b"=" + pack(placed(program)(group, *args))
            except Exception as raised:
                error = raised
                told = b"!" + json.dumps([type(error).__name__, str(error)]).encode()
        with self.deadline(error):
            reports = self.meet("program", told)
        failures = {rank: report for rank, report in enumerate(reports) if report is None or report[:1] == b"!"}
        if failures:
            if xp.path == "staged" and all(_NO_MEMORY in (report or b"") for report in failures.values()):
                pytest.skip("needs memory that the ranks share, which arrays on a device by path staged have not")
            raise error or _told(failures)
        if group is not None:  # where one has failed, messages may be under way
            group.free()
        return [unpack((report or b"=")[1:]) for report in reports[:ranks]]

    def verdict(self, failure: str) -> dict[int, str]:
        """At the end of a test: what failed on which ranks. Returns when all ranks are at the end of it."""
        with self.deadline(failure or None):
            while None in (told := self.meet("end", failure.encode())):
                pass  # somebody still was at a program, and has now failed there because this rank was not
        return {rank: text.decode() for rank, text in enumerate(told) if text}

    def meet(self, place: str, data: bytes) -> list[bytes | None]:
        """Every rank's data, by rank; None for those that came to meet at another place."""
        if self._meeting.num_nodes == 1:
            self._meeting.peers().meet()  # asleep: MPI's own waits would take the cores of those still at work
        notes = [json.loads(note) for note in self._meeting.exchange(json.dumps([place, len(data)]))]
        if any(there != place for there, _ in notes):
            return [data if rank == self.rank else None for rank in range(self.size)]
        blobs = [np.empty(length, np.uint8) for _, length in notes]
        blobs[self.rank][:] = np.frombuffer(data, np.uint8)
        others = [rank for rank in range(self.size) if rank != self.rank]
        requests = [self._meeting.irecv(blobs[rank], rank) for rank in others if len(blobs[rank])]
        requests += [self._meeting.isend(blobs[self.rank], rank) for rank in others if data]
        for request in requests:
            request.wait()
        return [blob.tobytes() for blob in blobs]

    @contextmanager
    def deadline(self, failure: BaseException | str | None) -> Iterator[None]:
        """End the job unless the block ends within GRACE_S; does nothing on a rank without a failure."""
        if failure is None:
            yield
            return
        text = failure if isinstance(failure, str) else "".join(traceback.format_exception(failure))

        def end() -> None:
            story = f"\nrank {self.rank} failed while others are still inside the test:\n{text}\n"
            os.write(2, story.encode())
            guard().end(1)

        timer = threading.Timer(GRACE_S, end)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()


def _told(failures: dict[int, bytes | None]) -> Exception:
    """The error of the first rank that failed, as a rank that did not fail hears of it."""
    rank, report = next(iter(failures.items()))
    kind, message = json.loads(report[1:]) if report else ("RankFailed", "failed before it came to this program")
    found = getattr(errors, kind, None) or getattr(builtins, kind, None) or errors.RankFailed
    error: Exception = found(message)
    error.add_note(f"raised on rank {rank}; failed: {list(failures)}")
    return error


# -- results as bytes: JSON, then the arrays in NumPy's own format; nothing that could run code -------------


def pack(result: Any) -> bytes:
    """A result made of numbers, text, None, lists, tuples, dicts and arrays, as bytes."""
    arrays: list[np.ndarray] = []
    tree = json.dumps(_tree(result, arrays)).encode()
    out = io.BytesIO()
    out.write(len(tree).to_bytes(8, "little") + tree)
    for array in arrays:
        np.lib.format.write_array(out, array, allow_pickle=False)
    return out.getvalue()


def unpack(data: bytes) -> Any:
    """What was packed."""
    source = io.BytesIO(data)
    tree = json.loads(source.read(int.from_bytes(source.read(8), "little")))
    arrays: list[np.ndarray] = []
    while source.tell() < len(data):
        arrays.append(np.lib.format.read_array(source, allow_pickle=False))
    return _value(tree, arrays)


def _tree(x: Any, arrays: list[np.ndarray]) -> Any:
    """x as JSON can write it: a pair of kind and content."""
    match x:
        case None | bool() | int() | float() | str() if not isinstance(x, np.generic):
            return ["plain", x]
        case np.ndarray() | np.generic():
            arrays.append(np.asarray(x))
            return ["scalar" if isinstance(x, np.generic) else "array", len(arrays) - 1]
        case list() | tuple():
            return ["list" if isinstance(x, list) else "tuple", [_tree(item, arrays) for item in x]]
        case dict():
            return ["dict", [[_tree(key, arrays), _tree(value, arrays)] for key, value in x.items()]]
    raise TypeError(f"a {type(x).__name__} cannot travel from a rank to the test: return numbers, text or arrays")


def _value(tree: Any, arrays: list[np.ndarray]) -> Any:
    kind, content = tree
    match kind:
        case "array":
            return arrays[content]
        case "scalar":
            return arrays[content][()]
        case "list":
            return [_value(item, arrays) for item in content]
        case "tuple":
            return tuple(_value(item, arrays) for item in content)
        case "dict":
            return {_value(key, arrays): _value(value, arrays) for key, value in content}
    return content
