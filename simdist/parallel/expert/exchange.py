"""Exchange: sends tokens to experts on other ranks, and back, by all-to-all."""

import json
from dataclasses import dataclass

from simdist.arrays import Array, partition
from simdist.collectives import all_to_all
from simdist.comm import Communicator
from simdist.errors import ArgumentError, as_declared, require_least
from simdist.nn import Shape
from simdist.nn.layers import Exchange, Load
from simdist.parallel.even import check_even, divisors
from simdist.parallel.expert.routes import ROUTE

__all__ = ["AllToAllExchange", "check_experts", "exchange_elements"]


@as_declared
def exchange_elements(tokens: float, width: float, ranks: int, top_k: int = 1, capacity_factor: float = 1.0) -> float:
    """k T c h (P-1)/P: the elements that a rank sends in each of a layer's all-to-alls, two forward and two backward.

    Args:
        tokens: T, of the rank.
        width: h.
        ranks: P, that share the experts; where each has one, their number E.
        top_k, capacity_factor: k, c. All slots are sent, full or empty.

    Raises:
        ArgumentError: there are no ranks.

    Source: Lepikhin et al. 2020, arXiv 2006.16668, section 3.
    """
    require_least("ranks", ranks, 1)
    return top_k * tokens * capacity_factor * width * (ranks - 1) / ranks


def check_experts(shape: Shape, ep: int, runs: int = 1) -> None:
    """Raise ArgumentError, with the possible values, if ranks cannot share the experts of a GPT.

    Args:
        ep: the number of ranks that share them.
        runs: the number of runs that a text is split into over ranks; a group of tokens must be within one run.
    """
    check_even("experts", shape.experts, "ep", ep)
    group = shape.group or shape.context
    if shape.experts and shape.context % (runs * group):
        run, uneven = divmod(shape.context, runs)
        fit = map(str, [] if uneven else divisors(run))
        raise ArgumentError(
            f"texts of {shape.context} tokens in {runs} runs would cut groups of {group} tokens that share the "
            f"experts' slots; groups that fit have {', '.join(fit) or 'no'} tokens"
        )


@dataclass(eq=False)
class AllToAllExchange(Exchange):
    """Each rank has its own tokens, and some of the experts; a token may go to any of these.

        P  ranks      E  experts, E/P a rank      m  slots of each rank for each expert      h  width

                 filled by the rank             at its experts
                 e0   e1 | e2   e3              from rank 0, rank 1
        rank 0   a0   a1 | a2   a3     <--->    e0: a0 b0      e1: a1 b1
        rank 1   b0   b1 | b2   b3              e2: a2 b2      e3: a3 b3

    All slots are sent, full or empty, equally many between each pair of ranks: m is the capacity times the most groups
    of tokens on any rank. So uneven loads cost no extra bytes, but drop tokens.

    Args:
        comm: the ranks that share the experts; the axis `ep` of a mesh.
        algorithm: of the all-to-all; "hierarchical" exchanges within nodes first, then between them.

    Cost per rank, layer and micro-batch: two all-to-alls forward, to the experts and back, and two backward; each
    sends E m h (P-1)/P items. With a capacity factor of 1 and equally many tokens on all ranks, this is
    k · tokens · h (P-1)/P. Before, the ranks exchange their numbers of slots, which is not recorded. Recomputation
    repeats the forward. `backward_weight` sends nothing.

    Source: Lepikhin et al. 2020, arXiv 2006.16668, section 3 (all-to-all between groups and experts); Fedus, Zoph,
    Shazeer 2021, arXiv 2101.03961, section 5 (experts and data on the same ranks).
    """

    comm: Communicator
    algorithm: str = "auto"

    def own(self, experts: int) -> slice:
        """This rank's experts: consecutive ones, equally many on each rank.

        Raises:
            ArgumentError: the ranks do not divide the experts evenly.
        """
        check_even("experts", experts, "ep", self.comm.size)
        return partition(experts, self.comm.size)[self.comm.rank]

    def slots(self, count: int) -> int:
        """The most slots on any rank."""
        return max(int(note) for note in self.comm.exchange(str(count))) if self.comm.size > 1 else count

    def to_experts(self, x: Array) -> Array:
        """(E, m, h) to (E/P, P m, h)."""
        p, (experts, m, h) = self.comm.size, x.shape
        if p == 1:
            return x
        y = all_to_all(x.reshape(p, experts // p, m, h), self.comm, self.algorithm)
        return _turned(y).reshape(experts // p, p * m, h)

    def to_tokens(self, y: Array) -> Array:
        """(E/P, P m, h) to (E, m, h)."""
        p, (experts, m, h) = self.comm.size, y.shape
        if p == 1:
            return y
        x = all_to_all(_turned(y.reshape(experts, p, m // p, h)), self.comm, self.algorithm)
        return x.reshape(experts * p, m // p, h)

    def clock(self) -> float:
        """The time on the communicator's clock."""
        return self.comm.clock()

    def tell(self, since_s: float, load: Load) -> None:
        """Record a span "route" and the layer's name, with the load in its detail for `routes`; NaN for phantoms."""
        recorder = self.comm.recorder
        if recorder.on:
            own = self.own(len(load.asked))
            told = load._asdict() | {
                "asked": [float(n) for n in load.asked],
                "dropped": [float(n) for n in load.dropped],
                "own": [own.start, own.stop],
            }
            name = f"{ROUTE} {told.pop('layer')}"
            recorder.add(self.comm.stream_name, name, since_s, self.comm.clock(), detail=json.dumps(told))


def _turned(x: Array) -> Array:
    """A contiguous copy with the first two axes swapped."""
    y: Array = x.swapaxes(0, 1).copy()
    return y
