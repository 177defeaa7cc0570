"""Weights: which version of its weights a stage uses for each micro-batch.

Version 0 is the initial weights; update u makes version u. A stage is updated after the last gradient of every group
of micro-batches:

    flush            one group: all micro-batches use version 0, and the pipeline drains before the update
    stashing         a forward uses the stage's newest version, which is kept for the backward
    vertical sync    on all stages, a micro-batch uses the version that was newest on stage 0 when it entered
    2bw              on all stages, group g uses version g-1, or 0 for the first, so two versions are enough

Source: Harlap et al. 2018, PipeDream, arXiv 1806.03377: weight stashing, vertical sync; Narayanan et al. 2021,
Memory-Efficient Pipeline-Parallel DNN Training, arXiv 2006.09503, section 3: 2BW, flush.
"""

from dataclasses import dataclass

from simdist.errors import ArgumentError, require_known, require_whole

__all__ = ["FLUSH", "POLICIES", "Weights"]

POLICIES = ("flush", "stashing", "vertical sync", "2bw")


@dataclass(frozen=True, slots=True)
class Weights:
    """A policy of weight versions.

    Args:
        policy: one of POLICIES.
        group: micro-batches per update of a stage; 0 under flush, which means all.

    Raises:
        ArgumentError: there is no such policy, or the group does not fit it.
    """

    policy: str = "flush"
    group: int = 0

    def __post_init__(self) -> None:
        require_known("policy of weight versions", self.policy, POLICIES)
        require_whole("group", self.group, 0)
        if (self.group == 0) != self.flushes:
            raise ArgumentError(
                f"{self.policy} with {self.group} micro-batches between updates: needs "
                + ("0, which means all" if self.flushes else "at least 1")
            )

    @property
    def flushes(self) -> bool:
        """Whether the pipeline drains before its one update, so that stages always have weights of one version."""
        return self.policy == "flush"

    def group_of(self, micro_batch: int) -> int:
        """The group of a micro-batch, from 0."""
        return micro_batch // self.group if self.group else 0


FLUSH = Weights()
"""One update, after all micro-batches."""
