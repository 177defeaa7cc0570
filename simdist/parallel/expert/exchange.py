"""Exchange: sends tokens to experts on other ranks, and back, by all-to-all."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from simdist.arrays import Array, charge, partition
from simdist.collectives import all_to_all
from simdist.comm import Communicator, Stream, Work
from simdist.errors import ArgumentError, as_declared, require_least
from simdist.nn import Shape
from simdist.nn.layers import Exchange, Load
from simdist.parallel.even import check_even, divisors
from simdist.parallel.expert.routes import ROUTE

__all__ = ["AllToAllExchange", "check_experts", "exchange_elements"]


@dataclass(eq=False)
class AllToAllExchange(Exchange):
    """Each rank has its own tokens, and some of the experts; a token may go to any of these.

        P  ranks      E  experts, E/P a rank      m  slots of each rank for each expert      h  width

                 filled by the rank             at its experts
                 e0   e1 | e2   e3              from rank 0, rank 1
        rank 0   a0   a1 | a2   a3     <--->    e0: a0 b0      e1: a1 b1
        rank 1   b0   b1 | b2   b3              e2: a2 b2      e3: a3 b3

    With an overlap degree of 2, a second stream sends half of each expert's slots while experts work on the other half:

        main      | wait         | experts on 1 | experts on 2 | wait         |
        exchange  | 1 to experts | 2 to experts | 1 to tokens  | 2 to tokens  |

    All slots are sent, full or empty, equally many between each pair of ranks: m is the capacity times the most groups
    of tokens on any rank. So uneven loads cost no extra bytes, but drop tokens.

    Args:
        comm: the ranks that share the experts; the axis `ep` of a mesh.
        algorithm: of the all-to-all; "hierarchical" exchanges within nodes first, then between them.
        overlap_degree: the parts of the slots that travel one by one; with more than one, all of `comm` must make the
            exchange, for its stream.

    Cost per rank, layer and micro-batch: two all-to-alls forward, to the experts and back, and two backward; each
    sends E m h (P-1)/P items. With a capacity factor of 1 and equally many tokens on all ranks, this is
    k · tokens · h (P-1)/P. Before, the ranks exchange their numbers of slots, which is not recorded. Recomputation
    repeats the forward. `backward_weight` sends nothing. With an overlap degree of d the same bytes travel in d times
    as many all-to-alls, and slots are copied into parts and out of them: 4 E m h items of memory traffic each way.

    Raises:
        ArgumentError: overlap_degree is less than 1.

    Source: Lepikhin et al. 2020, arXiv 2006.16668, section 3 (all-to-all between groups and experts); Fedus, Zoph,
    Shazeer 2021, arXiv 2101.03961, section 5 (experts and data on the same ranks); Hwang et al. 2022, Tutel,
    arXiv 2206.03382 (pipelining, of parts of each expert's capacity).
    """

    comm: Communicator
    algorithm: str = "auto"
    overlap_degree: int = 1
    _side: Stream | None = field(init=False, default=None, repr=False)

    def __post_init__(self) -> None:
        require_least("overlap_degree", self.overlap_degree, 1)
        if self.overlap_degree > 1 and self.comm.size > 1:
            self._side = self.comm.stream("exchange")

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
        if self.comm.size == 1:
            return x
        return _of_experts(all_to_all(self._by_rank(x), self.comm, self.algorithm))

    def to_tokens(self, y: Array) -> Array:
        """(E/P, P m, h) to (E, m, h)."""
        if self.comm.size == 1:
            return y
        return _of_tokens(all_to_all(self._by_source(y), self.comm, self.algorithm))

    def through(self, x: Array, work: Callable[[Array], Array]) -> Array:
        """See Exchange. In parts, if there is an overlap degree; `work` is called for each part, in order."""
        if (side := self._side) is None:
            x = self.to_experts(x)  # what was sent is freed before the work, which a caller's frame would keep
            return self.to_tokens(work(x))

        def start(x: Array) -> Work:
            return side.start(all_to_all, x, side.comm, self.algorithm)

        runs = [run for run in partition(x.shape[1], self.overlap_degree) if run.start < run.stop] or [slice(0, 0)]
        coming = [start(self._by_rank(x[:, run].copy())) for run in runs]
        going = [start(self._by_source(work(_of_experts(coming.pop(0).wait())))) for _ in runs]
        y = np.empty_like(x)
        for run in runs:
            y[:, run] = _of_tokens(going.pop(0).wait())
        charge(0, 2 * (x.nbytes + y.nbytes))
        return y

    def _by_rank(self, x: Array) -> Array:
        """(E, m, h) to (P, E/P, m, h): what goes to the experts of each rank."""
        experts, m, h = x.shape
        return x.reshape(self.comm.size, experts // self.comm.size, m, h)

    def _by_source(self, y: Array) -> Array:
        """(E/P, P m, h) to (P, E/P, m, h): what goes back to each rank."""
        experts, slots, h = y.shape
        return _turned(y.reshape(experts, self.comm.size, slots // self.comm.size, h))

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
            f"experts' slots, by default a whole text; a group that fits has {', '.join(fit) or 'no'} tokens"
        )


def _of_experts(x: Array) -> Array:
    """(P, E/P, m, h), from each rank, to (E/P, P m, h)."""
    p, experts, m, h = x.shape
    return _turned(x).reshape(experts, p * m, h)


def _of_tokens(y: Array) -> Array:
    """(P, E/P, m, h), from each rank's experts, to (E, m, h)."""
    p, experts, m, h = y.shape
    return y.reshape(p * experts, m, h)


def _turned(x: Array) -> Array:
    """A contiguous copy with the first two axes swapped."""
    y: Array = x.swapaxes(0, 1).copy()
    return y
