"""What the collectives' tests have in common."""

from simdist.bench.trial import Trial, outcome
from simdist.collectives import algorithms

DTYPES = ("float16", "float32", "float64", "int32", "int64", "bool")
OPS = ("sum", "min", "max", "prod", "lor", "land")
OPERATIONS = ("all_reduce", "reduce_scatter", "reduce", "all_gather", "all_to_all", "broadcast", "scatter", "gather")


def every_algorithm(operations=OPERATIONS):
    """(operation, algorithm) of all there are."""
    return [(operation, name) for operation in operations for name in algorithms(operation)]


def outgoing(spans):
    """The bytes of each message that was sent, and of all that was left, or written, where other ranks read it."""
    found = [span.bytes for span in spans if span.name == "send"]
    return found + [int(span.detail.split(", ")[1].split()[0]) for span in spans if span.name == "move"]


def outcomes(comm, trials):
    """The program: the outcomes of trials, given as plain tuples."""
    return [outcome(Trial(*trial), comm) for trial in trials]


def hold(comm, trials):
    """The program: perform all trials, and fail unless results and traffic are as they must be.

    Returns a fingerprint of each result on this rank, to compare between ranks and between worlds.
    """
    found = outcomes(comm, trials)
    for trial, seen in zip(trials, found, strict=True):
        where = f"rank {comm.rank} of {comm.size}, {trial}"
        assert seen.counted == seen.promised, where
        assert seen.error <= seen.limit, where
    return [seen.digest for seen in found]
