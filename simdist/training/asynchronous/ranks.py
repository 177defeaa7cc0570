"""Ranks: how many an asynchronous run needs, and which of them are workers."""

from simdist.errors import ArgumentError
from simdist.training.asynchronous.methods import GOSSIP, SERVED, consistency, graph, slowed
from simdist.training.config import Config
from simdist.words import counted

__all__ = ["check_ranks", "first_worker"]


def first_worker(config: Config) -> int:
    """The rank of the first worker; those before it are servers."""
    return config.servers if config.method in SERVED else 0


def check_ranks(config: Config, ranks: int) -> None:
    """Raise ArgumentError if a config cannot run on this many ranks."""
    first = first_worker(config)
    if ranks <= first:
        raise ArgumentError(f"servers is {first} on {counted(ranks, 'rank')}; needs at least one rank more, to work")
    for rank in slowed(config):
        if not first <= rank < ranks:
            raise ArgumentError(f"slow names rank {rank}; those that work are ranks {first} to {ranks - 1}")
    if first:
        consistency(config).check(ranks - first)
    if config.method in GOSSIP:
        found = graph(config, ranks)
        if config.method == "ad-psgd":
            found.sides()
