"""Perform: a collective as it is called: all ranks are known to ask for the same, an algorithm does it, one span tells.

What becomes of a call depends on its arguments, but not on what the arrays hold: so it is worked out once.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np

from simdist.arrays import Array, kind_of
from simdist.collectives.registry import Algorithm, algorithms, choose, find
from simdist.comm import Communicator
from simdist.errors import ArgumentError

__all__ = ["IN_PLACE", "Options", "Told", "Way", "carry_out", "perform", "way_of"]

Options = dict[str, Any]
"""An algorithm's own options, by name."""
Told = tuple[Any, ...]
"""Dtype and shape, then pairs of what else the ranks have to agree on: its name, its value. May be empty."""


@dataclass(slots=True)
class Way:
    """What becomes of a call: the same for all calls of a communicator with the same arguments.

    Attributes:
        run: the algorithm, with its options.
        title: of the span.
        words: what is done, to compare with what the others say.
        later: whether that can wait until the ranks meet.
        asks: to be said before the ranks show each other where their arrays lie, if they have to.
        other: the way to go if these do not all lie in memory that the ranks share.
        prepare: see Algorithm; None also where there are options.
    """

    run: Callable[..., Any]
    title: str
    words: str
    later: bool
    asks: str = ""
    other: "Way | None" = None
    prepare: Callable[..., Callable[[Array], None] | None] | None = None


_MOST_WAYS = 4096
_BY_MESSAGES = ("cuda-aware", "staged")
"""Device paths on which ranks do not open each other's memory."""
IN_PLACE = ("all_reduce", "reduce", "reduce_scatter", "broadcast", "all_gather")
"""What leaves a rank that is alone with what it has: no algorithm needs to take memory for that."""


def _nothing(*_: Any) -> None:
    """There is nothing to do."""


def _way(
    operation: str, algorithm: str, comm: Communicator, num_bytes: int, told: Told, options: Options, path: str
) -> Way:
    """Work it out.

    Args:
        path: of arrays on devices, how they come to other ranks: see `Device`.
    """
    apart = path in _BY_MESSAGES
    words = _words(told) + "".join(f", {name} {value!r}" for name, value in sorted(options.items()))
    words += f", on a device by path {path}" if path else ""

    def by(found: Algorithm, other: Way | None = None) -> Way:
        if options:
            found.check_options(options)
        if apart and comm.size > 1 and not found.by_messages:
            raise ArgumentError(
                f"{operation} by {found.name} of arrays on a device, and device path {comm.device.path}: "
                "needs ipc, or an algorithm by messages"
            )
        run = partial(found.run, **options) if options else found.run
        if comm.size == 1 and operation in IN_PLACE:
            run = _nothing
        later = not found.by_messages and comm.num_nodes == 1
        asks = f"{operation} by auto of {words}" if other else ""
        prepare = None if options else found.prepare
        return Way(run, found.title, f"{operation} by {found.name} of {words}", later, asks, other, prepare)

    if algorithm != "auto":
        return by(find(operation, algorithm))
    if path == "ipc" and "direct" in algorithms(operation):  # what was measured on the host says nothing of it
        return by(find(operation, "direct"))
    shared, own = choose(operation, comm, num_bytes, by_messages=apart)
    return by(shared) if shared is own else by(shared, by(own))


@lru_cache(maxsize=4096)
def _words(told: Told) -> str:
    """As all ranks say it."""
    array = f"{told[0]}{list(told[1])}" if told else "nothing"
    return array + "".join(f", {name} {value}" for name, value in told[2:])


def way_of(operation: str, algorithm: str, options: Options, comm: Communicator, x: Array, told: Told) -> Way:
    """The way of this call, worked out if it is the first of its kind.

    Args:
        x: the whole array, or a stand-in with its bytes.
        told: its dtype and shape, and by name what else is to be compared with what the others say.
    """
    ways: dict[Any, Way] | None = comm.attached.get("ways")
    if ways is None:
        ways = comm.attached["ways"] = {}
    path = "" if type(x) is np.ndarray or kind_of(x) != "cupy" else comm.device.path
    key = (operation, algorithm, told, path, *options.items()) if options else (operation, algorithm, told, path)
    try:
        way = ways.get(key)
    except TypeError:  # an option such as a list, which may be another one the next time
        way = _way(operation, algorithm, comm, x.nbytes, told, options, path)
    if way is None:
        if len(ways) == _MOST_WAYS:
            ways.clear()
        way = ways[key] = _way(operation, algorithm, comm, x.nbytes, told, options, path)
    return way


def _doing(outer: str, way: Way) -> str:
    """What a rank does, for messages about waits."""
    return f"{outer} > {way.title}" if outer else way.title


def perform(
    operation: str,
    algorithm: str,
    options: Options,
    comm: Communicator,
    x: Array,
    told: Told,
    call: Callable[[Callable[..., Any], Communicator], Any],
) -> Any:
    """Find the way and go it: the arguments are those of `way_of` and `carry_out`."""
    return carry_out(way_of(operation, algorithm, options, comm, x, told), comm, x, call)


def carry_out(way: Way, comm: Communicator, x: Array, call: Callable[[Callable[..., Any], Communicator], Any]) -> Any:
    """Do it, on the communicator's shadow, once all ranks are known to ask for the same.

    What `auto` picked shows in the name of the span, and the group's name in its detail.

    Args:
        x: the whole array, or a stand-in with its bytes.
        call: calls the algorithm with its arguments and the communicator. Plain calls take nothing of C's stack,
            which virtual ranks copy whenever they switch; run(*arguments) would.
    """
    shadow = comm.shadow
    recording = shadow.recorder.on
    outer, entered, start_s = shadow.doing, shadow.entered, shadow.clock() if recording else 0.0
    shadow.doing = _doing(outer, way)
    shadow.entered = shadow.num_messages
    try:
        if way.other is not None:
            comm.agree(way.asks, later=True)  # at the meeting at which they show their arrays
            if shadow.peers().show(x, ahead=True) is None:
                way = way.other
                shadow.doing = _doing(outer, way)
        elif comm.check:
            comm.agree(way.words, way.later)
        return call(way.run, shadow)
    finally:
        shadow.doing, shadow.entered = outer, entered
        if recording:
            shadow.recorder.add(shadow.stream_name, way.title, start_s, shadow.clock(), x.nbytes, detail=comm.context)
