"""Topologies: how many hosts some switches join, by which cables, and how many cables join the halves of a network.

    fat tree            of switches with k ports, half of them down, half of them up; on the top level all down
    dragonfly           groups of a switches, each with cables to p hosts, to all others of its group, and h to other
                        groups: one cable from each of the a h + 1 groups to each other
    HyperX              switches in a lattice, each with cables to all others along every axis
    Slim Fly            2q groups of q switches, any two of them at most two cables apart
    torus               no switches: each host has a cable both ways along every axis; a mesh is one that is not closed

All hosts of one half of a fat tree can send to the other at once, as a `Cluster` assumes of its network. One that is
oversubscribed seven times leaves each a seventh of its bandwidth: `with_(between=cluster.between.among(7, 1))`. Which
wires messages share, in any network, a `Cluster.route` says.

Source: Al-Fares, Loukissas, Vahdat 2008, SIGCOMM (fat tree); Kim, Dally, Scott, Abts 2008, ISCA (dragonfly); Ahn,
Binkert, Davis, McLaren, Schreiber 2009, SC09 (HyperX); Domke et al. 2019, SC19 (one of 12 x 8 switches); León
et al. 2016, SC16 (tapered fat trees); Besta, Hoefler 2014, SC14 (Slim Fly).
"""

from math import ceil, isclose, prod
from typing import NamedTuple

from simdist.errors import ArgumentError, as_declared, require_least, require_more, require_whole

__all__ = ["Topology", "dragonfly", "fat_tree", "hyperx", "slim_fly", "torus"]


class Topology(NamedTuple):
    """What a network consists of.

    Attributes:
        hosts, switches: how many.
        cables: between switches, or on a torus between hosts.
        bisection: how many of the cables join two halves of the network.
        hops: the most of the cables on the shortest way from one host to another.
    """

    hosts: int
    switches: int
    cables: int
    bisection: int
    hops: int

    @as_declared
    def all_to_all_s(self, num_bytes: float, bytes_per_s: float) -> float:
        """p n / (4 b W): the least time of an all-to-all of p hosts, if b cables join the halves of the network.

        Of what the hosts of one half send, half is for the other half. On a ring of TPUs, of which an all-gather takes
        V/2W of an array of V = p n bytes, this is V/8W, a quarter.

        Args:
            num_bytes: n, that each host sends to all together.
            bytes_per_s: W, of a cable each way.

        Raises:
            ArgumentError: bytes_per_s is not above 0.

        Source: Austin et al. 2025, "How to Scale Your Model", chapter 3, question 10, whose W is of both ways together.
        """
        require_more("bytes_per_s", bytes_per_s, 0)
        return self.hosts * num_bytes / (4 * self.bisection * bytes_per_s) if self.bisection else 0.0


@as_declared
def fat_tree(ports: int, levels: int = 3, oversubscription: float = 1.0, *, hosts: int = 0) -> Topology:
    """2 (k/2)^L hosts on (2L-1) (k/2)^(L-1) switches: the fat tree of L levels of switches with k ports.

    With two levels (leaves and spines) k²/2 hosts on 3k/2 switches, with three k³/4 on 5k²/4: of 48 ports 27,648 hosts
    on 2,880 switches. For fewer hosts there are as many switches as take the cables of the level below.

    Args:
        ports: k, even.
        levels: L, at least 1.
        oversubscription: r, of a leaf's ports down to those up, k/(r+1), in a tapered tree; 48 to 16 of 64 ports are 3.
        hosts: as many as there is room for, if not given.

    Raises:
        ArgumentError: ports is odd or below 2, levels below 1, a leaf has no such ports, or there is no room for so
            many hosts.
    """
    require_least("ports", ports, 2)
    require_least("levels", levels, 1)
    if ports % 2:
        raise ArgumentError(f"ports is {ports}; needs an even number")
    if levels == 1:
        hosts = _fitting(hosts, ports)
        return Topology(hosts, 1, 0, hosts // 2, 0)
    up, half = round(ports / (1 + oversubscription)), ports // 2
    if not 0 < up < ports or not isclose(up * (1 + oversubscription), ports):
        raise ArgumentError(f"oversubscription is {oversubscription} of {ports} ports; needs whole numbers up and down")
    hosts = _fitting(hosts, 2 * half ** (levels - 1) * (ports - up))
    leaves = ceil(hosts / (ports - up))
    cables = leaves * up  # between each level and the next; switches of the top have all their ports down
    switches = leaves + (levels - 2) * ceil(cables / half) + ceil(cables / ports)
    return Topology(hosts, switches, (levels - 1) * cables, cables // 2, 2 * (levels - 1))


def _fitting(hosts: int, room: int) -> int:
    """So many hosts, or as many as there is room for."""
    require_least("hosts", hosts, 0)
    if hosts > room:
        raise ArgumentError(f"hosts is {hosts}; needs at most {room}, for which such a tree has ports")
    return hosts or room


@as_declared
def dragonfly(hosts: int, switches: int, links: int, groups: int = 0) -> Topology:
    """a p g hosts: a dragonfly of groups of a switches with p hosts and h links to other groups each.

    A switch has p + a - 1 + h ports. The links are balanced if a = 2p = 2h: with 63 ports, 16 hosts, 32 switches and 16
    links, for 262,656 hosts.

    Args:
        hosts: p, of a switch.
        switches: a, of a group.
        links: h, of a switch.
        groups: g, at most a h + 1, which it is if not given. Fewer have several cables between two of them, as evenly
            as possible; what is left of the bisection by division is not counted.

    Raises:
        ArgumentError: one of the first three is less than 1, or there are too many groups.
    """
    for name, value in (("hosts", hosts), ("switches", switches), ("links", links)):
        require_least(name, value, 1)
    away = switches * links  # cables of a group to others
    groups = groups or away + 1
    if groups > away + 1:
        raise ArgumentError(f"groups is {groups}; needs at most {away + 1}, with {away} cables of each to others")
    inside = groups * switches * (switches - 1) // 2
    if groups == 1:
        halves = (switches // 2) * ((switches + 1) // 2)
        return Topology(switches * hosts, switches, inside, halves, min(switches - 1, 1))
    halves = (groups // 2) * ((groups + 1) // 2) * away // (groups - 1)
    reached = sum(links < n for n in (groups - 1, switches * (groups - 1)))  # groups, switches that a switch misses
    return Topology(groups * switches * hosts, groups * switches, inside + groups * away // 2, halves, 1 + reached)


def hyperx(*sides: int, hosts: int = 1, links: int = 1) -> Topology:
    """T ΠS hosts on ΠS switches: HyperX, whose switches of T hosts have links to the S - 1 others along every side.

    Sides of 2 make a hypercube, a single side a complete graph, and equal ones a flattened butterfly. The halves are
    those of the side where fewest cables join them.

    Args:
        sides: S, of the lattice of switches: with 12 x 8 and 7 hosts each 672, 57% of whose halves can send at once.
        hosts: T, of a switch.
        links: K, between two switches.

    Raises:
        ArgumentError: there is no side, or a number is no whole number of at least 1.
    """
    lengths = _lengths("HyperX", sides)
    require_whole("hosts", hosts, 1)
    require_whole("links", links, 1)
    switches = prod(lengths)
    hosts, links = int(hosts), int(links)
    cables = links * switches * sum(side - 1 for side in lengths) // 2
    across = min((switches // side * (side // 2) * ((side + 1) // 2) for side in lengths if side > 1), default=0)
    return Topology(hosts * switches, switches, cables, links * across, sum(side > 1 for side in lengths))


def slim_fly(q: int, hosts: int = 0) -> Topology:
    """2q² switches with (3q - δ)/2 cables each, any two of them at most two apart: Slim Fly, where q = 4w + δ.

    With k cables each there can be 1 + k² switches at most, of which this is 8/9 for large q. Half of the q groups of
    either kind are a half of the network: q³/2 cables join them, the fewest, and if q is odd (q³ + q)/2.

        q    hosts      switches    cables, of a switch, all
        5    4          50          7     175                   Hoffman and Singleton's graph: 1 + 7² switches
        19   15         722         29    10,469                10,830 hosts, from switches of 44 ports
        28   21         1,568       42    32,928                32,928 hosts, from switches of 63 ports

    Args:
        q: whose remainder by 4 is not 2. Such graphs are known where q is a prime or a power of one; for others, as
            28, these are the numbers that comparisons of networks give.
        hosts: of a switch; if not given, half as many as cables, rounded up.

    Raises:
        ArgumentError: q is below 3, or no such number, or hosts is no whole number of at least 0.

    Source: Besta, Hoefler 2014, SC14, sections II and III; McKay, Miller, Širáň 1998, J. Combinatorial Theory B 74(1).
    """
    require_whole("q", q, 3)
    require_whole("hosts", hosts, 0)
    q, hosts = int(q), int(hosts)
    if q % 4 == 2:
        raise ArgumentError(f"q is {q}; needs a remainder by 4 of 0, 1 or 3")
    switches, each = 2 * q**2, (3 * q + 1) // 2 if q % 4 == 3 else 3 * q // 2
    hosts = hosts or (each + 1) // 2
    return Topology(hosts * switches, switches, switches * each // 2, (q**3 + q % 2 * q) // 2, 2)


def torus(*sides: int, closed: bool = True) -> Topology:
    """The product of the sides in hosts, each with cables to the next and the last one along every side.

    A side of 2 has one cable, not two; a torus of such sides alone is a hypercube. The halves are those of the side
    where fewest cables join them: the longest, except that of 3 and 2 it is the latter.

    Args:
        closed: if not, the ends of a side are not joined: a mesh. Of 8 x 8 hosts it has 112 cables, of which 8 join the
            halves, and 14 hops; a torus has 128, 16 and 8.

    Raises:
        ArgumentError: there is no side, or one is no whole number of at least 1.
    """
    lengths = _lengths("torus", sides)
    hosts = prod(lengths)
    rings = {side: closed and side > 2 for side in lengths}
    cables = sum(hosts if rings[side] else hosts * (side - 1) // side for side in lengths)
    across = min(((1 + rings[side]) * hosts // side for side in lengths if side > 1), default=0)
    hops = sum(side // 2 if rings[side] else side - 1 for side in lengths)
    return Topology(hosts, 0, cables, across, hops)


def _lengths(network: str, sides: tuple[int, ...]) -> list[int]:
    """The sides as Python's own numbers: NumPy's are of fixed size.

    Raises:
        ArgumentError: there is no side, or one is no whole number of at least 1.
    """
    if not sides:
        raise ArgumentError(f"a {network} of no sides; needs at least 1")
    for side in sides:
        require_whole("side", side, 1)
    return [int(side) for side in sides]
