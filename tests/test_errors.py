import re

import pytest

from simdist.asynchronous import graphs
from simdist.errors import ArgumentError, require_least, require_more, require_share, require_takes
from simdist.parallel import compression, optimizer, pipeline
from simdist.training import methods


def fits_none():
    """Takes none of the arguments that are given to what is registered."""


@pytest.mark.parametrize(
    ("register", "called"),
    [
        (compression.named("own", share=0.5), "compression own is called with (like, parameters, share=…)"),
        (optimizer("own", learning_rate=0.1), "optimizer own is called with (recipe, like, matrices, combine)"),
        (pipeline.named("own"), "schedule own is called with (stages=…, micro_batches=…)"),
        (methods.named("own"), "method own is called with (model, comm, config)"),
        (graphs.named("own"), "graph own is called with (ranks)"),
    ],
)
def test_what_is_registered_can_be_called(register, called):
    with pytest.raises(ArgumentError, match=re.escape(f"what makes {called}; this one cannot be: ")):
        register(fits_none)


@pytest.mark.parametrize("register", [compression.named, optimizer, pipeline.named, methods.named, graphs.named])
def test_a_decorator_without_a_name_is_refused(register):
    """It would register nothing, and leave a decorator in the function's place."""
    with pytest.raises(ArgumentError, match=r"<function fits_none at .*>: needs a name, such as 'mine', before"):
        register(fits_none)


def test_an_argument_that_nobody_gives():
    require_takes("x", lambda a, b=2, *, c: 0, "a", c=1)
    require_takes("x", dict, "a")  # which does not say what it takes
    require_takes("x", lambda a, *, c: 0, "a")  # others may be given with its name
    with pytest.raises(
        ArgumentError, match=r"what makes x is called with \(a, d=…\); this one cannot be: got an unexp"
    ):
        require_takes("x", lambda a, *, c: 0, "a", d=1)


@pytest.mark.parametrize("require", [require_least, require_more, require_share])
def test_nan_is_within_no_limits(require):
    with pytest.raises(ArgumentError, match="x is nan; needs "):
        require("x", float("nan"), *([] if require is require_share else [0]))
