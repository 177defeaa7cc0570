"""Registry: every algorithm of every collective, by name, with its cost beside it."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from inspect import signature
from typing import Any, TypeVar

from simdist.cluster import Link
from simdist.collectives.cost import Case, Cost, Formula
from simdist.comm import Communicator
from simdist.errors import unknown_name

__all__ = ["Algorithm", "algorithm", "algorithms", "choose", "cost", "find", "formula"]

Run = TypeVar("Run", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Algorithm:
    """One way to perform a collective.

    Attributes:
        operation, name: "all_reduce", "ring".
        run: the function that does it, on a flat array and a communicator.
        cost: what one rank does, exactly.
        formula: the published time.
    """

    operation: str
    name: str
    run: Callable[..., Any]
    cost: Callable[..., Cost]
    formula: Callable[..., Formula]

    def check_options(self, options: Iterable[str]) -> None:
        """Raise UnknownNameError for an option that `run` does not take."""
        parameters = signature(self.run).parameters.values()
        if any(p.kind is p.VAR_KEYWORD for p in parameters):  # it checks them itself
            return
        known = [p.name for p in parameters if p.default is not p.empty]
        for name in options:
            if name not in known:
                raise unknown_name(f"option of {self.operation} {self.name}", name, known)


_ALGORITHMS: dict[str, dict[str, Algorithm]] = {}


def algorithm(
    operation: str, name: str, *, cost: Callable[..., Cost], formula: Callable[..., Formula]
) -> Callable[[Run], Run]:
    """Register the function below as one way to perform `operation`.

    Args:
        cost: cost(case, **options) -> Cost of rank case.rank; the options are those of the function.
        formula: formula(case, **options) -> Formula.
    """

    def register(run: Run) -> Run:
        _ALGORITHMS.setdefault(operation, {})[name] = Algorithm(operation, name, run, cost, formula)
        return run

    return register


def algorithms(operation: str) -> list[str]:
    """The names of all algorithms for a collective, such as "all_reduce".

    Raises:
        UnknownNameError: there is no such collective.
    """
    if operation not in _ALGORITHMS:
        raise unknown_name("collective", operation, _ALGORITHMS)
    return list(_ALGORITHMS[operation])


def find(operation: str, name: str) -> Algorithm:
    """The algorithm of this name.

    Raises:
        UnknownNameError: there is none; the message lists those there are.
    """
    if name not in algorithms(operation):
        raise unknown_name(f"{operation} algorithm", name, ["auto", *_ALGORITHMS[operation]])
    return _ALGORITHMS[operation][name]


def cost(operation: str, algorithm: str, *, ranks: int, num_bytes: int, **case_and_options: Any) -> Cost:
    """What one rank does, exactly: steps, messages and bytes.

    Args:
        ranks, num_bytes: and rank=0, root=0, itemsize=1, ranks_per_node, as of `Case`. Where the array's
            length is no multiple of the ranks, give itemsize: chunks hold whole items.
        case_and_options: the rest of the case, and options of the algorithm.

    Raises:
        UnknownNameError: no such collective or algorithm.
        ArgumentError: no such case.
    """
    case, options = _case(ranks, num_bytes, case_and_options)
    return find(operation, algorithm).cost(case, **options)


def formula(operation: str, algorithm: str, *, ranks: int, num_bytes: int, **case_and_options: Any) -> Formula:
    """The published time as coefficients of alpha, beta and gamma; the arguments are those of `cost`."""
    case, options = _case(ranks, num_bytes, case_and_options)
    return find(operation, algorithm).formula(case, **options)


def _case(ranks: int, num_bytes: int, rest: dict[str, Any]) -> tuple[Case, dict[str, Any]]:
    fields = {name: value for name, value in rest.items() if name in Case.__slots__}
    options = {name: value for name, value in rest.items() if name not in fields}
    return Case(ranks, num_bytes, **fields), options


def choose(operation: str, comm: Communicator, num_bytes: int) -> Algorithm:
    """What `auto` stands for: the algorithm whose formula gives the least time on this communicator.

    All ranks choose alike, because they ask the same model with the same numbers.
    """
    link = comm.cluster.inside if comm.num_nodes == 1 else comm.cluster.between
    ranks_per_node = comm.size // comm.num_nodes
    rate = comm.cluster.device.reduced_bytes_per_s
    return find(operation, _fastest(operation, comm.size, num_bytes, ranks_per_node, link, rate))


@lru_cache(maxsize=4096)
def _fastest(operation: str, ranks: int, num_bytes: int, ranks_per_node: int, link: Link, rate: float) -> str:
    case = Case(ranks, num_bytes, ranks_per_node=ranks_per_node)
    candidates = _ALGORITHMS[operation].values()
    return min(candidates, key=lambda a: a.formula(case).seconds(link, rate)).name
