"""Graph: which ranks exchange messages in decentralized methods.

    ring(6)          torus(3, 3)        exponential(8)               bipartite(5)

    0 - 1 - 2        0 - 1 - 2 -        0 - 1                        0 - 1   0 - 3
    |       |        |   |   |          0 - - 2                      2 - 1   2 - 3
    5 - 4 - 3        3 - 4 - 5 -        0 - - - - 4                  4 - 1   4 - 3
                     |   |   |          and back to 7, 6, 4;
                     6 - 7 - 8 -        likewise for all others
                     |   |   |

The faster a graph spreads information, the more messages a step costs. With Metropolis weights (see `mixing`), ranks of
a ring have 2 neighbours and need about 3p²/(4π²) steps to come closer to each other by a factor of e; those of an
exponential graph have about 2 lg p neighbours and need about (lg p)/2 steps.
"""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from simdist.collectives.torus import most_square
from simdist.errors import ArgumentError, as_declared, require_whole, wrong_return
from simdist.registry import Registry
from simdist.words import counted

__all__ = [
    "Graph",
    "bipartite",
    "complete",
    "exponential",
    "graph",
    "graphs",
    "grid",
    "hypercube",
    "line",
    "named",
    "ring",
    "star",
    "torus",
]


@dataclass(frozen=True)
class Graph:
    """An undirected graph on ranks 0 … p-1, without loops.

    Args:
        neighbours: of each rank, in any order; then ascending, and each once.

    Raises:
        ArgumentError: there are no ranks; or neighbours are not symmetric, do not exist, or are the rank itself.
    """

    neighbours: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        if not self.neighbours:
            raise ArgumentError("a graph of 0 ranks; needs at least 1")
        object.__setattr__(self, "neighbours", tuple(tuple(sorted(set(others))) for others in self.neighbours))
        back: list[list[int]] = [[] for _ in self.neighbours]  # of which ranks each is a neighbour, also ascending
        for i, others in enumerate(self.neighbours):
            for j in others:
                _check_edge(i, j, self.size)
                back[j].append(i)
        for i, others in enumerate(self.neighbours):
            if list(others) != back[i]:
                raise ArgumentError(
                    f"rank {i} has neighbours {list(others)}, and is a neighbour of {back[i]}; needs the same"
                )

    def __repr__(self) -> str:
        return f"<graph of {counted(self.size, 'rank')} and {counted(len(self.edges), 'edge')}>"

    @classmethod
    def of(cls, ranks: int, edges: Iterable[tuple[int, int]]) -> "Graph":
        """The graph with these edges, each between two of `ranks` ranks; duplicates count once.

        Raises:
            ArgumentError: an edge joins a rank to itself, or leads to a rank that does not exist.
        """
        found: list[set[int]] = [set() for _ in range(ranks)]
        for i, j in edges:
            _check_edge(i, j, ranks)
            found[i].add(j)
            found[j].add(i)
        return cls(tuple(map(tuple, found)))

    @property
    def size(self) -> int:
        """How many ranks."""
        return len(self.neighbours)

    def degree(self, rank: int) -> int:
        """How many neighbours this rank has."""
        return len(self.neighbours[rank])

    @property
    def edges(self) -> list[tuple[int, int]]:
        """Each edge once, its lower rank first."""
        return [(i, j) for i, others in enumerate(self.neighbours) for j in others if i < j]

    @property
    def connected(self) -> bool:
        """Whether the graph is connected."""
        return len(self._distances(0)) == self.size

    def reach(self, rank: int) -> int:
        """The eccentricity: the number of steps in which a message from this rank reaches all ranks connected to it."""
        return max(self._distances(rank).values())

    @property
    def diameter(self) -> int:
        """The most steps between two ranks that are connected: p // 2 on a ring, lg p on a hypercube."""
        return max(map(self.reach, range(self.size)))

    def sides(self) -> list[int]:
        """0 or 1 for each rank, so that every edge joins a 0 to a 1; the lowest rank of each component is 0.

        Raises:
            ArgumentError: the graph is not bipartite: some edge closes a cycle of odd length.
        """
        side: dict[int, int] = {}
        for first in range(self.size):
            if first not in side:
                side |= {rank: distance % 2 for rank, distance in self._distances(first).items()}
        for i, j in self.edges:
            if side[i] == side[j]:
                raise ArgumentError(
                    f"a graph of {self.size} ranks that is not bipartite: edge ({i}, {j}) closes a cycle of odd length"
                )
        return [side[rank] for rank in range(self.size)]

    def _distances(self, start: int) -> dict[int, int]:
        """The distance in edges to each rank that can be reached."""
        distance, queue = {start: 0}, deque([start])
        while queue:
            i = queue.popleft()
            for j in self.neighbours[i]:
                if j not in distance:
                    distance[j] = distance[i] + 1
                    queue.append(j)
        return distance


def _check_edge(i: int, j: int, ranks: int) -> None:
    """Raise ArgumentError if an edge joins a rank to itself, or leads to a rank that does not exist."""
    if i == j or not (0 <= i < ranks and 0 <= j < ranks):
        raise ArgumentError(f"edge ({i}, {j}): needs two different ranks of 0 to {ranks - 1}")


# -- by name ------------------------------------------------------------------------------------------

Maker = TypeVar("Maker", bound=Callable[[int], Graph])

_MAKERS = Registry[Callable[[int], Graph]]("graph")


def named(name: str) -> Callable[[Maker], Maker]:
    """Decorator: register a function that makes a graph for a number of ranks, also for `simdist train --graph`.

        @named("ladder")
        def ladder(ranks):
            return Graph.of(ranks, [(r, r + k) for k in (1, 2) for r in range(ranks - k)])

    It must return a connected `Graph`, or raise ArgumentError if there is none of this size. A name of your own may be
    registered again.

    Raises:
        ArgumentError: there is no name, or it is one of simdist's own; or the function takes no number of ranks.
    """
    return _MAKERS.registering(name, lambda maker: maker, "ranks")


def graphs() -> list[str]:
    """The names of all graphs."""
    return list(_MAKERS)


def graph(name: str, ranks: int) -> Graph:
    """The graph of this name on this many ranks.

    Raises:
        UnknownNameError: there is none; the message lists the known names.
        ArgumentError: ranks is below 1; or the function returns no graph, one of another size, or a disconnected one.
    """
    require_whole("ranks", ranks, 1)
    made = _MAKERS.find(name)(ranks)
    if not isinstance(made, Graph):
        raise wrong_return(f"what makes graph {name}", made, "a Graph")
    if made.size != ranks:
        raise ArgumentError(f"graph {name} has {made.size} ranks; needs {ranks}")
    if not made.connected:
        raise ArgumentError(f"graph {name} on {ranks} ranks is disconnected; needs a path between any two ranks")
    return made


# -- the graphs ---------------------------------------------------------------------------------------


@named("ring")
@as_declared
def ring(ranks: int) -> Graph:
    """Each rank is connected to the next, the last to the first; bipartite if their number is even."""
    return _around(ranks, [1])


@as_declared
def torus(rows: int, columns: int) -> Graph:
    """A grid whose rows and columns are closed into rings; rank i is in row i // columns."""
    if rows < 1 or columns < 1:
        raise ArgumentError(f"a torus of {rows} x {columns} ranks; needs at least 1 x 1")
    grid = [divmod(i, columns) for i in range(rows * columns)]
    right = [(i, y * columns + (x + 1) % columns) for i, (y, x) in enumerate(grid)]
    down = [(i, (y + 1) % rows * columns + x) for i, (y, x) in enumerate(grid)]
    return Graph.of(rows * columns, [(i, j) for i, j in right + down if i != j])


named("torus")(lambda ranks: torus(*most_square(ranks)))


@named("exponential")
@as_declared
def exponential(ranks: int) -> Graph:
    """Each rank is connected to those 1, 2, 4, 8, … places away, in both directions so that weights can be symmetric.

    Source: Ying et al. 2021, arXiv 2110.13363, where edges are directed, which gives another spectral gap.
    """
    return _around(ranks, [1 << k for k in range(ranks.bit_length())])


@named("hypercube")
@as_declared
def hypercube(ranks: int) -> Graph:
    """Each rank is connected to those whose numbers differ from its own in one bit.

    Raises:
        ArgumentError: ranks is no power of two.
    """
    if ranks < 1 or ranks & (ranks - 1):
        raise ArgumentError(f"a hypercube of {ranks} ranks; needs a power of two")
    digits = [1 << k for k in range(ranks.bit_length() - 1)]
    return Graph.of(ranks, [(i, i ^ digit) for i in range(ranks) for digit in digits])


@named("line")
@as_declared
def line(ranks: int) -> Graph:
    """Each rank is connected to the next."""
    return Graph.of(ranks, [(i, i + 1) for i in range(ranks - 1)])


@as_declared
def grid(rows: int, columns: int) -> Graph:
    """Rows and columns that are not closed; rank i is in row i // columns."""
    if rows < 1 or columns < 1:
        raise ArgumentError(f"a grid of {rows} x {columns} ranks; needs at least 1 x 1")
    places = range(rows * columns)
    right = [(i, i + 1) for i in places if (i + 1) % columns]
    return Graph.of(rows * columns, right + [(i, i + columns) for i in places[:-columns]])


named("grid")(lambda ranks: grid(*most_square(ranks)))


@named("star")
@as_declared
def star(ranks: int) -> Graph:
    """Rank 0 is connected to all others, like a server."""
    return Graph.of(ranks, [(0, i) for i in range(1, ranks)])


@named("complete")
@as_declared
def complete(ranks: int) -> Graph:
    """Each rank is connected to all others."""
    return _around(ranks, range(1, ranks))


@named("bipartite")
@as_declared
def bipartite(ranks: int) -> Graph:
    """Every even rank is connected to every odd one."""
    return Graph.of(ranks, [(i, j) for i in range(0, ranks, 2) for j in range(1, ranks, 2)])


def _around(ranks: int, distances: Iterable[int]) -> Graph:
    """Each rank is connected to those at these distances before and after it on a circle."""
    return Graph.of(ranks, [(i, (i + d) % ranks) for i in range(ranks) for d in distances if d % ranks])


_MAKERS.close()
