"""Execution: a plan executed on virtual ranks with all its messages, but phantom arrays."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import islice
from typing import NamedTuple

from simdist.comm import Communicator
from simdist.comm.virtual.world import run_virtual
from simdist.planning.job import check_kinds
from simdist.planning.workbench import Workbench
from simdist.training.config import Config
from simdist.training.text import Text
from simdist.training.trainer import Trainer
from simdist.words import counted

__all__ = ["Execution", "execute"]


class Execution(NamedTuple):
    """The measurements of an executed plan.

    Attributes:
        seconds: of a step, after the first ones have set up groups of ranks.
        memory: by rank, the peak bytes of each category.
        num_bytes: by rank, the peak bytes of all categories together.
    """

    seconds: float
    memory: list[Mapping[str, int]]
    num_bytes: list[int]

    def __repr__(self) -> str:
        ranks, most = counted(len(self.num_bytes), "rank"), max(self.num_bytes, default=0) / 1e9
        return f"<execution on {ranks}: {self.seconds:.4g} s a step, at most {most:,.4g} GB>"


def execute(config: Config, bench: Workbench) -> Execution:
    """Train for three steps and measure the third: from the end of the second on all ranks to its end on all.

    The arrays are phantoms, whatever the config's device.

    Cost: about 10 ms of real time for each layer, micro-batch and rank.
    """
    check_kinds(config, bench)
    hollow = replace(config, device="phantom", validation_windows=0, sample_bytes=0)
    longer = replace(hollow, steps=4, interval=4)  # nothing is logged between these
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
