"""Execution: a plan carried out on virtual ranks, to the last message, without numbers."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import islice
from typing import NamedTuple

from simdist.comm import Communicator
from simdist.comm.virtual.world import run_virtual
from simdist.planning.workbench import Workbench
from simdist.training.config import Config
from simdist.training.text import Text
from simdist.training.trainer import Trainer

__all__ = ["Execution", "execute"]


class Execution(NamedTuple):
    """What came of it.

    Attributes:
        seconds: of a step, when groups of ranks have found each other.
        memory: of each rank the most bytes of each category.
        num_bytes: of each rank the most of all categories at once.
    """

    seconds: float
    memory: list[Mapping[str, int]]
    num_bytes: list[int]


def execute(config: Config, bench: Workbench) -> Execution:
    """Train for three steps, of which the third counts: from when all ranks have ended the second to when all have
    ended it.

    Args:
        config: of phantoms.

    Cost: about 10 ms of this machine for each layer, micro-batch and rank that a step has.
    """
    longer = replace(config, steps=4, interval=4)  # nothing is logged between these
    text = Text(longer)

    def program(comm: Communicator) -> tuple[list[float], Trainer]:
        trainer = Trainer(comm, longer, text=text)
        return [comm.clock() for _ in islice(trainer.run(), 3)], trainer

    found: list[tuple[list[float], Trainer]] = run_virtual(program, bench.ranks, bench.machine(config), record=False)[0]
    _, before_s, end_s = (max(ends) for ends in zip(*(ends_s for ends_s, _ in found), strict=True))
    ledgers = [trainer.ledger for _, trainer in found]
    return Execution(
        end_s - before_s, [dict(ledger.peaks) for ledger in ledgers], [ledger.peak.total for ledger in ledgers]
    )
