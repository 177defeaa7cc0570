"""Routes: what ranks record of each forward pass, added up by layer."""

import json

import pytest

from simdist.parallel.expert import routes
from simdist.parallel.expert.routes import Routed
from simdist.trace import Span


def told(rank, layer, own, asked, dropped, tokens, auxiliary):
    """What a rank tells of its tokens, and of the experts own[0] … own[1]-1, which it has; 4 slots are its own."""
    what = {"tokens": tokens, "asked": asked, "dropped": dropped, "slots": 4, "auxiliary": auxiliary, "own": own}
    return Span(rank, "main", f"route {layer}", 0.0, 1.0, detail=json.dumps(what))


def test_what_all_ranks_tell_is_added_up_and_losses_are_weighed_by_tokens():
    spans = [
        told(3, "block1.experts", [0, 1], [5], [1], 5, 0.5),
        told(0, "block0.experts", [0, 2], [6, 4, 0], [2, 0, 0], 10, 0.1),
        Span(0, "main", "route block0.experts", 0.0, 1.0),  # one of the program's own
        Span(0, "main", "compute", 0.0, 1.0, detail="{}"),
        told(2, "block0.experts", [2, 3], [0, 0, 0], [0, 0, 0], 0, 9.0),
        told(1, "block0.experts", [2, 3], [1, 9, 20], [0, 0, 7], 30, 0.3),
    ]
    found = routes(spans)
    assert list(found) == ["block1.experts", "block0.experts"]
    one, both = found.values()
    assert one == Routed(5, [5], [1], 4, 0.5, [{3}])
    assert (both.tokens, both.asked, both.dropped, both.slots) == (40, [7, 13, 20], [2, 0, 7], 12)
    assert both.auxiliary == pytest.approx((10 * 0.1 + 30 * 0.3) / 40)
    assert both.holders == [{0}, {0}, {1, 2}]
