"""Perform: one call of a collective: check that all ranks ask for the same, run an algorithm, record a span.

How a call is carried out depends on its arguments, but not on the values in the arrays, so it is worked out only once.

Training reduces the same few arrays in every step. To check each time what and where they are, and which algorithm to
use, takes a seventh of the time of an all-reduce of 16 KiB. MPI 4 has persistent collectives for this
(MPI_Allreduce_init), which a program sets up; here the first call does: `prepare`.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any
from weakref import ref

import numpy as np

from simdist.arrays import Array, Reduction, kind_of
from simdist.collectives.registry import Algorithm, algorithms, choose, find, version
from simdist.comm import Communicator
from simdist.errors import ArgumentError, wrong_return

__all__ = ["IN_PLACE", "Options", "Plan", "Signature", "execute", "perform", "plan_of", "prepare", "prepared"]

Options = dict[str, Any]
"""An algorithm's own options, by name."""
Signature = tuple[Any, ...]
"""Dtype and shape, then a pair (name, value) for each other thing that the ranks must agree on. May be empty."""


@dataclass(slots=True)
class Plan:
    """How a call is carried out: the same for all calls of a communicator with the same arguments.

    Attributes:
        run: the algorithm, with its options.
        title: of the span.
        words: the call in words, which the ranks compare.
        later: whether the comparison can wait until the ranks meet.
        asks: the words to compare before the ranks show each other their arrays; empty if they do not.
        other: the plan to use if not all of these arrays are in shared memory.
        prepare: see Algorithm; None also where there are options.
        returns: whether the algorithm returns its result; if not, it leaves it in its array.
    """

    run: Callable[..., Any]
    title: str
    words: str
    later: bool
    asks: str = ""
    other: "Plan | None" = None
    prepare: Callable[..., Callable[[Array], None] | None] | None = None
    returns: bool = False


_MOST_PLANS = 4096  # per communicator; most of those prepared may be of arrays that no longer exist
_BY_MESSAGES = ("cuda-aware", "staged")
"""Device paths on which ranks do not open each other's memory."""
IN_PLACE = ("all_reduce", "reduce", "reduce_scatter", "broadcast", "all_gather")
"""Operations that change nothing on a single rank: no algorithm needs to run, or to take memory, for that."""
_RETURNED = ("scatter", "gather")
"""Operations whose algorithms return their result."""
_NOT_SHOWN = (*_RETURNED, "barrier")
"""Operations for which at most one rank has the whole array: `auto` has nothing to look for in shared memory."""


def _plan(
    operation: str, algorithm: str, comm: Communicator, x: Array, signature: Signature, options: Options, path: str
) -> Plan:
    """Work out how to carry out a call; path: for arrays on devices, how they reach other ranks, see `Device`."""
    apart = path in _BY_MESSAGES
    words = _words(signature) + "".join(f", {name} {value!r}" for name, value in sorted(options.items()))
    words += f", on a device by path {path}" if path else ""

    def by(found: Algorithm, other: Plan | None = None) -> Plan:
        if options:
            found.check_options(options)
        if apart and comm.size > 1 and not found.by_messages:
            raise ArgumentError(
                f"{operation} by {found.name} of arrays on a device, and device path {comm.device.path}: "
                "needs ipc, or an algorithm by messages"
            )
        nothing_to_do = comm.size == 1 and operation in IN_PLACE
        run = (lambda *_: None) if nothing_to_do else partial(found.run, **options) if options else found.run
        later = not found.by_messages and comm.num_nodes == 1
        asks = f"{operation} by auto of {words}" if other else ""
        prepare = None if options else found.prepare
        call = f"{operation} by {found.name} of {words}"
        return Plan(run, found.title, call, later, asks, other, prepare, operation in _RETURNED)

    if algorithm != "auto":
        return by(find(operation, algorithm))
    if path == "ipc" and "direct" in algorithms(operation):  # measurements on the host do not apply
        return by(find(operation, "direct"))
    shared, own = choose(operation, comm, x.nbytes, by_messages=apart)
    if operation in _NOT_SHOWN:
        return by(own)
    return by(shared) if shared is own else by(shared, by(own))


@lru_cache(maxsize=4096)
def _words(signature: Signature) -> str:
    """The arguments in words."""
    array = f"{signature[0]}{list(signature[1])}" if signature else "nothing"
    return array + "".join(f", {name} {value}" for name, value in signature[2:])


def plan_of(
    operation: str, algorithm: str, options: Options, comm: Communicator, x: Array, signature: Signature
) -> Plan:
    """The plan of this call, worked out if it is the first of its kind.

    Args:
        x: the whole array, or a stand-in with its bytes.
        signature: its dtype and shape, and by name what else the ranks compare.
    """
    plans: dict[Any, Plan] | None = comm.attached.get("plans")
    if plans is None:
        plans = comm.attached["plans"] = {}
    path = "" if type(x) is np.ndarray or kind_of(x) != "cupy" else comm.device.path
    key: tuple[Any, ...] = operation, algorithm, signature, path, version(operation)
    if options:
        key += tuple(options.items())
    try:
        plan = plans.get(key)
    except TypeError:  # an unhashable option such as a list, which may have changed since
        plan = _plan(operation, algorithm, comm, x, signature, options, path)
    if plan is None:
        if len(plans) == _MOST_PLANS:
            plans.clear()
        plan = plans[key] = _plan(operation, algorithm, comm, x, signature, options, path)
    return plan


def _doing(outer: str, plan: Plan) -> str:
    """What a rank does, for messages about waits."""
    return f"{outer} > {plan.title}" if outer else plan.title


def perform(
    operation: str,
    algorithm: str,
    options: Options,
    comm: Communicator,
    x: Array,
    signature: Signature,
    call: Callable[[Callable[..., Any], Communicator], Any],
) -> Any:
    """Find the plan and carry it out: the arguments are those of `plan_of` and `execute`."""
    return execute(plan_of(operation, algorithm, options, comm, x, signature), comm, x, call)


def execute(plan: Plan, comm: Communicator, x: Array, call: Callable[[Callable[..., Any], Communicator], Any]) -> Any:
    """Run the algorithm on the communicator's shadow, once all ranks are known to ask for the same.

    What `auto` picked shows in the name of the span, and the group's name in its detail.

    Args:
        x: the whole array, or a stand-in with its bytes.
        call: calls the algorithm with its arguments and the communicator. Plain calls use no C stack, which virtual
            ranks copy at every switch; run(*arguments) would.

    Raises:
        ArgumentError: the algorithm returns something, instead of leaving the result in its array.
    """
    shadow = comm.shadow
    recording = shadow.recorder.on
    outer, entered, start_s = shadow.doing, shadow.entered, shadow.clock() if recording else 0.0
    shadow.doing = _doing(outer, plan)
    shadow.entered = shadow.num_messages
    try:
        if plan.other is not None:
            comm.agree(plan.asks, later=True)  # at the meeting at which they show their arrays
            # One by messages does not look at what is shown: the next collective would take it for its own.
            if shadow.peers().show(x, ahead=plan.later) is None:
                plan = plan.other
                shadow.doing = _doing(outer, plan)
        elif comm.check:
            comm.agree(plan.words, plan.later)
        returned = call(plan.run, shadow)
        if returned is not None and not plan.returns:  # the result is not where it is looked for
            raise wrong_return(plan.title, returned, "None, and the result in its array")
        return returned
    finally:
        shadow.doing, shadow.entered = outer, entered
        if recording:
            shadow.recorder.add(shadow.stream_name, plan.title, start_s, shadow.clock(), x.nbytes, detail=comm.context)


def prepared(comm: Communicator, x: Any, algorithm: str, op: Any) -> Plan | None:
    """The plan that was prepared for this very array; None if there is none."""
    try:
        known = comm.attached.get("prepared")
        found = known.get((id(x), algorithm, op)) if known else None
    except (AttributeError, TypeError):  # no communicator, or an invalid op, such as a list
        return None
    if found is None:
        return None
    array, dtype, plan, registered = found
    same = array() is x and x.dtype is dtype and x.ndim == 1  # its id may be of another; its shape may have been set
    return plan if same and x.flags.carray and registered == version("all_reduce") else None


def prepare(plan: Plan, comm: Communicator, x: Array, algorithm: str, op: Any, fold: Reduction) -> None:
    """Let `prepared` find the plan of the next call for x, if its algorithm can be prepared.

    Arrays that own their memory are skipped, because NumPy could not resize them any more. Those of `comm.empty` do not
    own theirs.

    Args:
        x: shape (n,).
        algorithm, op: as the caller gave them; fold is what op stands for.
    """
    if plan.prepare is None or plan.other is not None or type(x) is not np.ndarray or x.base is None:
        return
    run = plan.prepare(x, comm.shadow, fold)
    if run is not None:
        known = comm.attached.setdefault("prepared", {})
        if len(known) >= _MOST_PLANS:
            known.clear()
        known[id(x), algorithm, op] = ref(x), x.dtype, replace(plan, run=run), version("all_reduce")
