"""Execution: a plan carried out on virtual ranks, to the last message, without numbers."""

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from simdist.comm import Communicator
from simdist.comm.virtual.world import run_virtual
from simdist.planning.bench import Bench
from simdist.training.config import Config
from simdist.training.text import Text
from simdist.training.trainer import Trainer

__all__ = ["Execution", "execute"]


class Execution(NamedTuple):
    """What came of it.

    Attributes:
        seconds: of a step, when groups of ranks have found each other.
        memory: by category, the most bytes of it on the rank that held most.
        num_bytes: the most of all categories at once.
    """

    seconds: float
    memory: Mapping[str, int]
    num_bytes: int


def execute(config: Config, bench: Bench) -> Execution:
    """Train for two steps, of which the second counts.

    Args:
        config: of phantoms.

    Cost: about 5 ms of this machine for each layer, micro-batch and rank that a step has.
    """
    twice = replace(config, steps=2)
    text = Text(twice)

    def program(comm: Communicator) -> Execution:
        trainer = Trainer(comm, twice, text=text)
        ends_s = [trainer.gauge.total.seconds for _ in trainer.run()]
        peak = trainer.ledger.peak.total
        return Execution(ends_s[-1] - ends_s[0], dict(trainer.ledger.peaks), peak)

    ranks: list[Execution] = run_virtual(program, bench.ranks, bench.cluster, record=False)[0]
    fullest = max(ranks, key=lambda rank: rank.num_bytes)
    return fullest._replace(seconds=max(rank.seconds for rank in ranks))
