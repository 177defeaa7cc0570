"""Federated averaging: data stay with their clients, and weights travel.

    w      the weights of all            n_k   how many samples client k has
    S_t    the clients of round t        n     how many samples the clients of S_t have in total
    w_k    the result of client k: E epochs of SGD from w, over its own samples

        rank 0     w --+--> client 0 --> w₀ --+--> w ← Σ (n_k / n) w_k --+--> …
                       +--> client 3 --> w₃ --+                          |
        rank 1     w -----> client 4 --> w₄ --+  uplink                  +--> downlink

Client k runs on rank k mod p, so there may be more clients than ranks. Rank 0 is also the server. Every sampled client
sends it its weights, even a client on rank 0, so the recorded bytes are those of one machine per client. The server
sums in the order of the sample, so any number of ranks gives the same bits.

FedAvg with E = 1 and all samples in one batch is FedSGD: the mean of w - γ g_k is w - γ times the mean of g_k. FedProx
keeps clients near w: each minimizes its loss + μ/2 ‖w_k - w‖².

Source: McMahan et al. 2017, arXiv 1602.05629, algorithm 1; Li et al. 2020, arXiv 1812.06127, algorithm 2 (FedProx).
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from simdist.arrays import Array, charge, clear
from simdist.asynchronous.compute_time import ComputeTime, Constant
from simdist.collectives import broadcast
from simdist.comm import Communicator
from simdist.errors import ArgumentError, as_declared, require_least
from simdist.optim import SGD

__all__ = ["Federation", "Round", "local_updates", "uplink_bytes"]


class Round(NamedTuple):
    """One rank's view of a round.

    Attributes:
        clients: all that were sampled, on any rank.
        losses: by client that runs on this rank, the mean over its steps.
    """

    clients: list[int]
    losses: dict[int, float]


@as_declared
def uplink_bytes(clients: int, fraction: float, rounds: int, num_bytes: int) -> int:
    """The bytes that K clients with data send in this many rounds: max(1, C·K) times the weights per round."""
    return rounds * _sample_size(clients, fraction) * num_bytes


@as_declared
def local_updates(samples: int, clients: int, epochs: int, batch_size: int | None = None) -> float:
    """u = E n / (K B): the mean number of SGD steps that a client makes in a round, if its last batch is whole.

    Args:
        samples, clients: n, of all K clients together.
        epochs, batch_size: E; B, or None for all of a client's samples at once.

    Raises:
        ArgumentError: a number is less than 1.

    Source: McMahan et al. 2017, arXiv 1602.05629, section 2 and table 2.
    """
    if min(samples, clients, epochs, 1 if batch_size is None else batch_size) < 1:
        told = f"samples is {samples}, clients {clients}, epochs {epochs}, batch_size {batch_size}"
        raise ArgumentError(f"{told}; needs at least 1 of each")
    return float(epochs) if batch_size is None else epochs * samples / (clients * batch_size)


class Federation:
    """Clients with private data on the ranks of a communicator, which train one set of weights.

    Args:
        comm: the ranks; all of them must construct it, with the same arguments.
        gradient: gradient(weights, samples) -> (mean loss, its gradient) over the samples with these indices.
        splits: the indices of each client's samples; a client without any is never sampled. A rank computes
            gradients only for its own clients.
        learning_rate: of the clients' SGD.
        fraction: C, the share of the clients with data that take part in a round, 0 to 1; at least one does.
        epochs: E, passes of a client over its samples in a round.
        batch_size: B, of a client's steps; None for all its samples.
        mu: μ of FedProx; 0 is FedAvg.
        seed: of the choice of clients, and of the order of each client's samples.
        compute_time: extra time of a client's round, in addition to its actual computation, by client and round.

    Cost per round, with n bytes of weights and m sampled clients: uplink, m messages of n bytes to rank 0; downlink,
    one broadcast of n bytes.

    Raises:
        ArgumentError: an argument is outside of its limits, or no client has data; on every rank.
    """

    @as_declared
    def __init__(
        self,
        comm: Communicator,
        gradient: Callable[[Array, Array], tuple[float, Array]],
        splits: Sequence[Array],
        learning_rate: float,
        *,
        fraction: float = 1.0,
        epochs: int = 1,
        batch_size: int | None = None,
        mu: float = 0.0,
        seed: int = 0,
        compute_time: ComputeTime | None = None,
    ) -> None:
        if epochs < 1 or (batch_size is not None and batch_size < 1) or not 0 <= mu < math.inf:
            raise ArgumentError(
                f"epochs is {epochs}, batch_size {batch_size}, mu {mu}; needs at least 1, 1 and 0, and mu finite"
            )
        self.able = [k for k, samples in enumerate(splits) if len(samples)]
        _sample_size(len(self.able), fraction)  # raises if the fraction is out of range
        self.comm = comm
        self.splits = splits
        self.fraction = fraction
        self.epochs = epochs
        self.batch_size = batch_size
        self.mu = mu
        self.seed = seed
        self.learning_rate = learning_rate
        self.compute_time = compute_time or Constant()
        self._gradient = gradient

    def home(self, client: int) -> int:
        """The rank that a client runs on."""
        return client % self.comm.size

    def sample(self, t: int) -> list[int]:
        """S_t: max(1, C·K) distinct clients of the K with data, the same on every rank."""
        choice = np.random.default_rng([self.seed, 0, t])
        size = _sample_size(len(self.able), self.fraction)
        return [self.able[i] for i in choice.choice(len(self.able), size, replace=False).tolist()]

    def train(self, weights: Array, rounds: int, observe: Callable[[int, Array], None] | None = None) -> list[Round]:
        """Train for a number of rounds; all ranks must call.

        Args:
            weights: shape (n,), floats; all ranks start from those of rank 0. Changed in place, equally on all ranks.
            rounds: how many.
            observe: called with (round, weights) after each.
        """
        require_least("rounds", rounds, 0)
        broadcast(weights, self.comm)
        found = []
        for t in range(rounds):
            found.append(self._round(weights, t))
            if observe is not None:
                observe(t, weights)
        return found

    def _round(self, w: Array, t: int) -> Round:
        comm, clients, losses = self.comm, self.sample(t), {}
        # Posted before rank 0 trains its own clients, so that the uploads of others need not wait for it.
        serving = comm.rank == 0
        uploads = [np.empty_like(w) for _ in clients] if serving else []
        coming = [comm.irecv(upload, self.home(k)) for k, upload in zip(clients, uploads, strict=False)]
        going = []
        for k in clients:
            if self.home(k) == comm.rank:
                with comm.span(f"client {k}", w.nbytes):
                    mine, losses[k] = self._client(w, k, t)
                going.append(comm.isend(mine, 0))
        for request in (*coming, *going):
            request.wait()
        with comm.span("server", w.nbytes):
            if serving:
                self._average(w, clients, uploads)
            broadcast(w, comm)
        return Round(clients, losses)

    def _client(self, w: Array, k: int, t: int) -> tuple[Array, float]:
        """The weights that client k trains from w in round t, and its mean loss."""
        comm, start_s = self.comm, self.comm.clock()
        mine, sgd, losses = w.copy(), SGD(w, momentum=0.0), []
        for samples in self._batches(k, t):
            loss, g = self._gradient(mine, samples)
            if self.mu:
                g = g + self.mu * (mine - w)
                charge(3 * w.size, 8 * w.nbytes)
            sgd.step(mine, g, self.learning_rate)
            losses.append(float(loss))
        self.compute_time.spend(comm, t, comm.clock() - start_s, rank=k)
        return mine, math.fsum(losses) / len(losses)

    def _batches(self, k: int, t: int) -> Iterator[Array]:
        """The sample indices of each step of client k in round t."""
        samples = self.splits[k]
        order = np.random.default_rng([self.seed, 1, t, k])
        for _ in range(self.epochs):
            if self.batch_size is None:
                yield samples
                continue
            shuffled = order.permutation(samples)
            yield from (shuffled[i : i + self.batch_size] for i in range(0, len(samples), self.batch_size))

    def _average(self, w: Array, clients: Sequence[int], uploads: Sequence[Array]) -> None:
        """w ← Σ (n_k / n) w_k."""
        n = sum(len(self.splits[k]) for k in clients)
        clear(w)
        for k, upload in zip(clients, uploads, strict=True):
            np.multiply(upload, len(self.splits[k]) / n, out=upload)
            np.add(w, upload, out=w)
        charge(2 * len(clients) * w.size, 5 * len(clients) * w.nbytes)


def _sample_size(clients: int, fraction: float) -> int:
    """How many of these clients take part in a round."""
    if clients < 1 or not 0 <= fraction <= 1:
        raise ArgumentError(f"fraction is {fraction}, of {clients} clients with data; needs 0 to 1, of some")
    return max(1, round(clients * fraction))
