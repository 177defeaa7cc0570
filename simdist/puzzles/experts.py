"""Experts: which slots tokens get, and their way to the rank of their expert and back."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from simdist.arrays import Array
from simdist.puzzles.puzzle import judges
from simdist.puzzles.runs import bounded, busiest_bytes, carried, compare, most_collectives, on_ranks
from simdist.puzzles.trial import call, trial
from simdist.puzzles.verdict import Finding

__all__: list[str] = []

RANKS = (1, 2, 3, 4)
_WIDTH = 3


def _slots(chosen: Array, capacity: int) -> Array:
    """For each token how many before it have the same expert; -1 where these fill it."""
    earlier = np.array([np.count_nonzero(chosen[:t] == expert) for t, expert in enumerate(chosen)], int)
    return np.where(earlier < capacity, earlier, -1)


@judges(
    27,
    "a slot for each token",
    """
A router has chosen an expert for each token. Every expert has `capacity` slots, numbered from 0, and fills them in the
order of the tokens. Return the slot of each token, or -1 if its expert is already full; the token is then dropped.

```python
import numpy as np

def place(chosen, capacity):             # chosen: shape (tokens,), experts from 0; returns slots of that shape
    return np.arange(len(chosen)) % capacity
```
""",
    "A token's slot is the number of tokens before it that have chosen the same expert.",
    "onehot = chosen[:, None] == np.arange(chosen.max() + 1) has a column for each expert. Sum down the columns.",
)
def _place(answer: Any) -> Iterator[Finding]:
    random = np.random.default_rng(0)
    cases = {
        "one token each": np.array([2, 0, 1, 3]),
        "all for one expert": np.full(5, 1),
        "a typical router": np.array([1, 1, 0, 1, 2, 0, 2, 1]),
        "many": random.integers(7, size=60),
    }
    for name, chosen in cases.items():
        for capacity in (1, 2, 60):
            given, told = chosen.copy(), f"{name}, {capacity} {'slots' if capacity > 1 else 'slot'} an expert"
            found, wanted = call(answer, given, capacity), _slots(chosen, capacity)
            why = "" if len(chosen) > 10 else f"chosen was {chosen}, the slots {wanted}"
            with np.errstate(invalid="ignore"):
                slots = np.asarray(found).astype(wanted.dtype)
            compare(f"the slots, {told}", slots, wanted, why)
        yield Finding(True, f"the slots, {name}", "right", "")


@judges(
    28,
    "to the experts and back",
    """
Every rank has one expert, and some tokens. With two collectives, bring each token to the rank of its expert, and the
expert's output back. The collectives need arrays of the same shape on all ranks, but no rank knows how many tokens it
will get. So each rank sends `capacity` rows to every rank: the first tokens that chose its expert, and rows of zeros if
there are fewer. The output of a token that is not sent is 0.

```python
from simdist.collectives import all_to_all     # all_to_all(x, comm): x[j] goes to rank j; returns y, y[i] from rank i

def through(x, chosen, expert, capacity, comm):     # x: shape (tokens, h); chosen: shape (tokens,), ranks; expert:
    return expert(x)                                # this rank's, for rows of shape (n, h); returns shape (tokens, h)
```
""",
    "Put the tokens into an array of shape (p, capacity, h), by rank and slot. Leave zeros in empty slots.",
    "What comes back from rank j is in the same slots of y[j]. np.flatnonzero(chosen == j) says which tokens they "
    "belong to.",
    "The expert needs an array of two axes: rows.reshape(-1, h). It returns something for empty slots, too: take only "
    "what belongs to a token.",
)
def _through(answer: Any) -> Iterator[Finding]:
    runs, least = {}, {}
    capacity = 2
    for p in RANKS:
        random = np.random.default_rng(p)
        texts = [random.normal(size=(4 + r, _WIDTH)) for r in range(p)]
        routes = [random.integers(p, size=len(text)) for text in texts]
        maps = random.normal(size=(p, _WIDTH, _WIDTH))

        def program(comm: Any, texts: Any = texts, routes: Any = routes, maps: Any = maps) -> Any:
            r = comm.rank
            return answer(texts[r].copy(), routes[r].copy(), lambda rows: 1 + np.tanh(rows @ maps[r]), capacity, comm)

        runs[p] = trial(program, p)
        for r, found in enumerate(runs[p].results):
            kept = _slots(routes[r], capacity) >= 0
            each = [1 + np.tanh(token @ maps[expert]) for token, expert in zip(texts[r], routes[r], strict=True)]
            why = f"its tokens chose {routes[r]}, and {capacity} each are sent"
            compare(f"the outputs of rank {r} of {p}", found, np.where(kept[:, None], each, 0.0), why)
        sent = np.array([[min(capacity, np.count_nonzero(route == j)) for j in range(p)] for route in routes])
        least[p] = 8 * _WIDTH * int((sent.sum(0) + sent.sum(1) - 2 * sent.diagonal()).min())
    yield Finding(True, "the outputs", "right", on_ranks(RANKS))
    yield bounded(runs, "collectives", most_collectives, lambda p: 2)
    yield bounded(runs, "bytes that a rank sends", busiest_bytes, lambda p: 2 * 8 * _WIDTH * capacity * (p - 1))
    yield carried(runs, lambda p: least[p])
