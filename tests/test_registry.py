"""Names that programs add: one's own may be registered again, simdist's may not."""

from copy import deepcopy

import pytest

import simdist as sd
from simdist.asynchronous import graphs
from simdist.collectives import Cost, Formula, algorithm, all_reduce, registry
from simdist.errors import ArgumentError, UnknownNameError
from simdist.parallel import compression, optimizer, pipeline
from simdist.registry import Registry
from simdist.training import methods


def all_reduce_named(name):
    return algorithm("all_reduce", name, cost=lambda case: Cost(1, 1, 1), formula=lambda case: Formula(9, 9))


@pytest.mark.parametrize(
    ("register", "name"),
    [
        (all_reduce_named, "ring"),
        (all_reduce_named, "auto"),
        (compression.named, "top-k"),
        (graphs.named, "star"),
        (methods.named, "ddp"),
        (methods.named, "pipeline"),
        (methods.named, "diloco"),
        (optimizer, "adamw"),
        (pipeline.named, "zb-h1"),
        (pipeline.named, "ZB-H1"),
        (pipeline.named, "dapple"),
    ],
)
def test_simdists_own_are_not_replaced(register, name):
    with pytest.raises(ArgumentError, match=f"{name}: simdist has its own of this name; needs another name"):
        register(name)


def test_the_latest_of_ones_own_counts():
    things = Registry("thing", known={"first": 1})
    for number in (2, 3):
        things.check("mine")
        things.register("mine", number)
    assert (things.find("mine"), things.version) == (3, 2)
    assert deepcopy(things).is_own("First") and not things.is_own("mine")
    with pytest.raises(UnknownNameError, match="unknown thing 'mime'; did you mean 'mine'"):
        things.find("mime")


@pytest.mark.parametrize("prepared", [False, True])
def test_an_algorithm_that_is_registered_again_runs_in_a_job_that_goes_on(prepared, monkeypatch):
    """As in a notebook, whose communicator stays when a cell is run again: nothing of the first is remembered."""
    monkeypatch.setattr(registry, "_ALGORITHMS", deepcopy(registry._ALGORITHMS))

    def register(value):
        def prepare(x, comm, op):
            return lambda x: x.fill(value)

        mine = algorithm(
            "all_reduce",
            "mine",
            cost=lambda case: Cost(1, 1, 1),
            formula=lambda case: Formula(9, 9),
            prepare=prepare if prepared else None,
        )
        mine(lambda x, comm, op: x.fill(value))

    def program(comm):
        x, seen = comm.empty(4, float), []
        for value in (1.0, 2.0):
            register(value)
            for _ in range(2):
                all_reduce(x, comm, algorithm="mine")
                seen.append(float(x[0]))
        return seen

    assert sd.run(program, 2).results == [[1.0, 1.0, 2.0, 2.0]] * 2
