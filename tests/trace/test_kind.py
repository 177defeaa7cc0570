"""What a span is, by its name."""

import pytest

from simdist.collectives import algorithms
from simdist.collectives.registry import find
from simdist.trace.kind import COLLECTIVES, COMMUNICATING, COMPUTING, kind


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("send", "send"),
        ("recv", "recv"),
        ("compute", "compute"),
        ("forward", "forward"),
        ("weight gradient", "weight gradient"),
        ("F0", "forward"),
        ("2F11", "forward"),
        ("B3", "backward"),
        ("1I0", "backward"),
        ("W7", "weight gradient"),
        ("F8&B0", "compute"),
        ("2F11&5I3", "compute"),
        ("F8&F0", "other"),
        ("all_reduce ring", "all_reduce"),
        ("wait for stream", "wait"),
        ("move", "move"),
        ("moved", "other"),
        ("state", "state"),
        ("disk write", "disk"),
        ("step", "other"),
        ("sender", "other"),
        ("F", "other"),
        ("", "other"),
        ("Fast 3", "other"),
    ],
)
def test_names(name, what):
    assert kind(name) == what


@pytest.mark.parametrize("what", [*COMPUTING, *COMMUNICATING])
def test_a_kind_is_a_name_of_its_own(what):
    assert kind(what) == what


@pytest.mark.parametrize("operation", COLLECTIVES)
def test_every_collective_is_known_by_the_name_that_its_spans_have(operation):
    for name in algorithms(operation):
        found = find(operation, name)
        assert kind(f"{found.operation} {found.name}") == operation
