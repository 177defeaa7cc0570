"""Route: the wires of a message on its way through a network, if others share them; those of a torus.

    a ring of hosts     0 ===> 1 ===> 2 ===> 3        messages from 0 to 2 and from 1 to 3 share the wire 1 -> 2, so
                        +-------------+               each of n bytes takes 2 n beta
                               +-------------+

Without routes a cluster's network has a port for each device or card and no wires that could be short. Formulas and
`auto` suppose that, too: what a run with routes takes longer is what its algorithm pays for the network.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from math import prod
from typing import TypeAlias

from simdist.errors import ArgumentError, require_least, require_whole

__all__ = ["Route", "Torus", "torus_route"]

Route: TypeAlias = Callable[[int, int], Sequence[Hashable]]
"""route(src, dst), global ranks on two nodes: the wires that a message passes, at least one, by names of any kind."""


@dataclass(frozen=True)
class Torus:
    """The shortest routes on a torus, along its last side first, whose hosts are numbered row by row.

    Each host has a cable both ways along every side, and sends on all of them at once: a wire is (host, next host).
    Half way round, even hosts go up and odd ones down.

    Args:
        sides: the hosts along each.

    Raises:
        ArgumentError: there is no side, or one is no whole number of at least 1; from a call, a host is not on it.
    """

    sides: tuple[int, ...]

    def __post_init__(self) -> None:
        require_least("sides", len(self.sides), 1)
        for side in self.sides:
            require_whole("side", side, 1)

    def __call__(self, src: int, dst: int) -> list[tuple[int, int]]:
        """The wires from one host to another."""
        hosts = prod(self.sides)
        if max(src, dst) >= hosts:
            told = " x ".join(map(str, self.sides))
            raise ArgumentError(f"rank {max(src, dst)} on a torus of {told} hosts, 0 to {hosts - 1}")
        wires, here, step = [], src, 1
        for side in reversed(self.sides):
            at, to = here // step % side, dst // step % side
            up = (to - at) % side
            forward = 2 * up < side or (2 * up == side and at % 2 == 0)
            for _ in range(up if forward else side - up):
                then = (at + (1 if forward else -1)) % side
                there = here + (then - at) * step
                wires.append((here, there))
                at, here = then, there
            step *= side
        return wires


def torus_route(*sides: int) -> Torus:
    """The routes of a torus with these sides: see `Torus`.

    tpu = preset("tpu-v4")
    sd.run(program, 16, cluster=tpu.with_(devices_per_node=1, between=tpu.inside, route=torus_route(4, 4)))
    """
    return Torus(sides)
