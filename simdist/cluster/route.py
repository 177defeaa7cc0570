"""Route: the wires of a message on its way through a network, if others share them; those of a torus.

    a ring of hosts     0 ===> 1 ===> 2 ===> 3        messages from 0 to 2 and from 1 to 3 share the wire 1 -> 2, so
                        +-------------+               each of n bytes takes 2 n beta
                               +-------------+

Without routes a cluster's network has a port for each device or card and no wires that could be short. Formulas and
`auto` suppose that, too: what a run with routes takes longer is what its algorithm pays for the network.
"""

from collections.abc import Callable, Hashable, Sequence
from typing import TypeAlias

from simdist.errors import ArgumentError, require_least, require_whole

__all__ = ["Route", "torus_route"]

Route: TypeAlias = Callable[[int, int], Sequence[Hashable]]
"""route(src, dst), global ranks on two nodes: the wires that a message passes, at least one, by names of any kind."""


def torus_route(*sides: int) -> Route:
    """The shortest routes on a torus, along its last side first, whose hosts are numbered row by row.

    Each host has a cable both ways along every side, and sends on all of them at once: a wire is (host, next host).
    Half way round, even hosts go up and odd ones down.

        tpu = preset("tpu-v4")
        sd.run(program, 16, cluster=tpu.with_(devices_per_node=1, between=tpu.inside, route=torus_route(4, 4)))

    Raises:
        ArgumentError: there is no side, or one is no whole number of at least 1; from the route, a host is not on it.
    """
    require_least("sides", len(sides), 1)
    for side in sides:
        require_whole("side", side, 1)
    axes, hosts = [], 1  # a step along an axis, and its side
    for side in reversed(sides):
        axes.append((hosts, int(side)))
        hosts *= int(side)

    def route(src: int, dst: int) -> list[tuple[int, int]]:
        """The wires from one host to another."""
        if max(src, dst) >= hosts:
            raise ArgumentError(
                f"rank {max(src, dst)} on a torus of {' x '.join(map(str, sides))} hosts, 0 to {hosts - 1}"
            )
        wires, here = [], src
        for step, side in axes:
            at, to = here // step % side, dst // step % side
            up = (to - at) % side
            forward = 2 * up < side or (2 * up == side and at % 2 == 0)
            for _ in range(up if forward else side - up):
                then = (at + (1 if forward else -1)) % side
                there = here + (then - at) * step
                wires.append((here, there))
                at, here = then, there
        return wires

    return route
