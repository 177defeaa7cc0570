"""Experts: a mixture of expert MLPs, a few of which each token is sent to, by an exchange."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from simdist.arrays import Array, moved
from simdist.arrays.working import widened
from simdist.errors import ArgumentError, as_declared
from simdist.nn import auxiliary
from simdist.nn import functional as f
from simdist.nn.layers.activation import Gelu, SwiGLU
from simdist.nn.layers.composite import Sequence
from simdist.nn.layers.experts_linear import ExpertsLinear
from simdist.nn.layers.layer import Layer
from simdist.nn.noise import Noise
from simdist.nn.parameters import Parameter

__all__ = ["Exchange", "Experts", "Load"]


class Load(NamedTuple):
    """The load of a layer's experts from this rank's tokens, in one forward.

    Attributes:
        layer: its name.
        tokens: the number of tokens.
        asked: how often each expert was chosen, shape (E,).
        dropped: how many of these choices found no slot, shape (E,).
        slots: the slots that each expert had for them.
        auxiliary: the layer's auxiliary loss, in nats per token.
    """

    layer: str
    tokens: int
    asked: Array
    dropped: Array
    slots: int
    auxiliary: float


class Exchange:
    """Moves filled slots to their experts, and back; in one process there is nothing to move.

        forward     dispatch -> to_experts -> experts -> to_tokens -> combine
        backward    combine -> to_experts -> experts -> to_tokens -> dispatch

    It only moves slots, so the backward of one direction is the other. A rank with only some of the experts overrides
    it.
    """

    def own(self, experts: int) -> slice | None:
        """Which of the experts this rank has; None for all, if they are not shared."""
        return None

    def slots(self, count: int) -> int:
        """The slots sent per expert if this rank fills `count`: the same on all ranks that share experts."""
        return count

    def to_experts(self, x: Array) -> Array:
        """From (E, m, h), this rank's slots of all experts, to all ranks' slots of this rank's experts."""
        return x

    def to_tokens(self, y: Array) -> Array:
        """The way back."""
        return y

    def through(self, x: Array, work: Callable[[Array], Array]) -> Array:
        """There, through the work of this rank's experts, and back.

        Args:
            x: as of `to_experts`.
            work: from what `to_experts` returns to the same shape; it may be called with a part of the slots at a time.
        """
        x = self.to_experts(x)
        return self.to_tokens(work(x))

    def clock(self) -> float:
        """The time in seconds."""
        return 0.0

    def tell(self, since_s: float, load: Load) -> None:
        """Record a load, whose routing began at `since_s`."""


class _Context(NamedTuple):
    x: Array
    p: Array
    chosen: Array
    w: Array
    kept: tuple[f.Route, ...]
    dbalance: Array  # the derivatives of the balance by p
    y: Array
    inner: list[Any]  # of the experts, for each part of the slots that they had at once


class Experts(Layer):
    """Each token goes only to the top_k experts (MLPs) that a router rates highest for it.

        x  -+-> router -> softmax -> the best experts, and weights w
            |
            +-> dispatch -> slots -> to_experts -> hidden, gelu, thought -> to_tokens -> combine -> y = Σ w expert(x)

    It has the parameters of all experts, and computes only top_k of them per token. An expert has `capacity` slots for
    each group of tokens; a token that finds them full is dropped: its output from this expert is zero, so that only
    the residual connection passes it on.

    A group is a run of tokens of one text. So dropping depends only on this text, and not on the rest of the batch or
    on ranks: a model on many ranks drops the same tokens as on one. A text's last run may be shorter, and has the
    capacity of a full one, so that later tokens never displace a first choice; second choices do give way to the
    first choices of later tokens.

    Choices are not a continuous function of the weights. If two experts are rated equal, the last bit of a sum decides,
    so in low precision runs that sum in another order, as on other numbers of ranks, may diverge.

    So that all experts are used, alpha · E Σ f P (see `balance`) of each group is added to the loss of every token
    in it: alpha per token if the load is even.

    Args:
        name: unique in its model.
        width, hidden: h, and the hidden size of an expert.
        experts: E, of the whole model.
        top_k: from 1 to the number of experts.
        capacity_factor: determines the slots for a group: see `capacity`. 1 is enough for an even load.
        alpha: the weight of the auxiliary loss.
        group: tokens in a group.
        std, residual_std: of the initial weights: of the router and the first linear map; of the second.
        exchange: sends slots to experts, if other ranks have some of them.
        perceptrons: computes the experts' outputs from their slots; if not given, two linear maps with a gelu between
            them.
        gated: whether these have a gate instead, and no biases: see `SwiGLU`.

    Cost: forward that of an MLP on all slots, full or empty; forward and backward each send slots `through` the
    exchange once. All shapes are known beforehand, so phantoms cost the same as arrays, except for dropped tokens.

    Raises:
        ArgumentError: a number is outside its limits.

    Source: Fedus, Zoph, Shazeer 2021, arXiv 2101.03961, section 2; Lepikhin et al. 2020, arXiv 2006.16668,
    section 2.2.
    """

    @as_declared
    def __init__(
        self,
        name: str,
        width: int,
        hidden: int,
        experts: int,
        *,
        group: int,
        top_k: int = 1,
        capacity_factor: float = 1.25,
        alpha: float = 0.01,
        std: float = 0.02,
        residual_std: float = 0.02,
        exchange: Exchange | None = None,
        perceptrons: Layer | None = None,
        gated: bool = False,
    ) -> None:
        if group < 1 or not 1 <= top_k <= experts or not capacity_factor > 0 or not alpha >= 0:
            raise ArgumentError(
                f"{experts} experts, top_k {top_k}, capacity factor {capacity_factor}, alpha {alpha}, group {group}: "
                "needs 1 <= top_k <= experts, a factor above 0, alpha of at least 0, at least 1 token per group"
            )
        self.name = name
        self.experts = experts
        self.top_k = top_k
        self.alpha = alpha
        self.group = group
        self.capacity = f.capacity(group, experts, capacity_factor, top_k)
        self.exchange = exchange or Exchange()
        own = self.exchange.own(experts)
        self.router = Parameter(f"{name}.router.w", (width, experts), std=std)
        inside = (2, hidden) if gated else hidden
        self.perceptrons = perceptrons or Sequence(
            [
                ExpertsLinear(f"{name}.hidden", experts, width, inside, std, own, bias=not gated),
                SwiGLU() if gated else Gelu(),
                ExpertsLinear(f"{name}.thought", experts, hidden, width, residual_std, own, bias=not gated),
            ]
        )
        self.parameters = (self.router, *self.perceptrons.parameters)

    def forward(self, x: Array, noise: Noise | None = None) -> tuple[Array, _Context]:
        """The context is the routes of the tokens, and the experts' outputs and contexts.

        Args:
            x: shape (n, t, h), texts of t tokens.
        """
        rows = x.reshape(-1, x.shape[-1])
        p, chosen, w, dbalance, kept, slots = self._route(rows, x.shape[1])
        filled = f.dispatch(rows, kept, self.experts * slots).reshape(self.experts, slots, x.shape[-1])
        inner: list[Any] = []

        def work(x: Array) -> Array:
            y, context = self.perceptrons.forward(x, noise)
            inner.append(context)
            return y

        y = self.exchange.through(filled, work).reshape(self.experts * slots, x.shape[-1])
        return f.combine(y, w, kept).reshape(x.shape), _Context(rows, p, chosen, w, kept, dbalance, y, inner)

    def _route(self, x: Array, t: int) -> tuple[Array, Array, Array, Array, tuple[f.Route, ...], int]:
        """Probabilities, choices, weights, derivatives of the balance, routes, and slots per expert."""
        since_s = self.exchange.clock()
        z = f.product(widened(x), widened(self.router.data), itemsize=x.itemsize)
        p, chosen, w = f.gate(z, self.top_k)
        group, groups = _groups(chosen, t, self.group)
        balance, dbalance = f.balance(p, chosen, group, groups)
        auxiliary.add(self.alpha * balance)
        slots = self.exchange.slots(groups * self.capacity)
        kept, asked, dropped = f.assign(chosen, self.experts, group, groups, self.capacity, slots)
        load = Load(self.name, len(x), asked, dropped, groups * self.capacity, self.alpha * balance / max(len(x), 1))
        self.exchange.tell(since_s, load)
        return p, chosen, w, dbalance, kept, slots

    def backward(self, context: _Context, dy: Array) -> Array:
        """Both halves, freeing what each layer of the experts kept as soon as it is used."""
        dx, dz = self._through(context, dy, lambda d: self.perceptrons.backward(context.inner.pop(0), d))
        f.linear_backward_weight(context.x, dz, self.router.gradient)
        return dx.reshape(dy.shape)

    def backward_input(self, context: _Context, dy: Array) -> tuple[Array, tuple[list[Any], Array]]:
        """The derivatives by the input, with all messages; those by the weights are pending, and need none."""
        pending: list[Any] = []

        def work(d: Array) -> Array:
            d, rest = self.perceptrons.backward_input(context.inner[len(pending)], d)
            pending.append(rest)
            return d

        dx, dz = self._through(context, dy, work)
        return dx.reshape(dy.shape), (pending, dz)

    def backward_weight(self, context: _Context, pending: tuple[list[Any], Array]) -> None:
        """Experts add the derivatives of their slots, from any rank; the router adds those of this rank's tokens."""
        inner, dz = context.inner, pending[1]
        f.linear_backward_weight(context.x, dz, self.router.gradient)
        while inner:
            self.perceptrons.backward_weight(inner.pop(0), pending[0].pop(0))

    def _through(self, context: _Context, dy: Array, work: Callable[[Array], Array]) -> tuple[Array, Array]:
        """The derivatives by the tokens and by the router's logits; `work` finds those by the experts' inputs."""
        p, (slots, h) = context.p, context.y.shape
        found = [*f.combine_backward(context.y, context.w, context.kept, dy.reshape(-1, h))]
        dw, shape = found.pop(), (self.experts, slots // self.experts, h)
        dslots = self.exchange.through(found.pop().reshape(shape), work).reshape(slots, h)  # freed once they are sent
        dx = f.dispatch_backward(dslots, context.kept, len(p))
        dp = context.dbalance * (self.alpha * auxiliary.scale())
        dz = f.gate_backward(p, context.chosen, context.w, dw, dp)
        return f.add(dx, f.linear_backward_input(dz, widened(self.router.data))), dz


def _groups(like: Array, t: int, size: int) -> tuple[Array, int]:
    """Each token's group number, and the number of groups: runs of `size` tokens of texts of t tokens."""
    text, place = np.divmod(moved(np.arange(len(like)), like), t)
    runs = -(-t // size)
    group = np.empty_like(like, shape=(len(like),))
    group[...] = text * runs + place // size
    return group, len(like) // t * runs
