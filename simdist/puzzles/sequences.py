"""Sequences: attention over keys that are on several ranks, and tokens spread so that all ranks have equal work."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np

from simdist.arrays import Array
from simdist.puzzles.puzzle import judges
from simdist.puzzles.runs import pair
from simdist.puzzles.trial import Failed, call
from simdist.puzzles.verdict import Finding, at_most
from simdist.words import counted

__all__: list[str] = []


def _attend(scores: Array, values: Array) -> tuple[Array, Array]:
    """The softmax of scores times values, and the logarithm of the sum of the exponentials, a row for each query."""
    top = scores.max(axis=1, keepdims=True)
    weights = np.exp(scores - top)
    total = weights.sum(axis=1, keepdims=True)
    return weights @ values / total, (top + np.log(total))[:, 0]


@judges(
    25,
    "attention in two halves",
    """
Two things describe a query's attention over a block of keys: the output `o`, which is softmax(scores) @ values, and
`z`, the logarithm of the sum of exp(scores). You have both for each of two blocks; compute them for the two blocks
together. Ring attention needs no more than that. Scores may be as large as 1000, and exp(1000) overflows.

```python
def merge(o1, z1, o2, z2):               # o: shape (queries, width), z: (queries,); returns o, z of both
    return (o1 + o2) / 2, z1 + z2
```
""",
    "The z of both is log(exp(z1) + exp(z2)). Weight each output by its block's share of this sum.",
    "np.logaddexp(z1, z2) does not overflow, and exp(z1 - z) is at most 1.",
)
def _merge(answer: Any) -> Iterator[Finding]:
    random = np.random.default_rng(0)
    right_if_small = True
    for name, shift in (
        ("small scores", np.zeros(1)),
        ("scores from about -1000 to 1000", np.linspace(-1000, 1000, 5)[:, None]),  # a query's are alike
        ("blocks whose scores are 1000 apart", np.repeat([0.0, 1000.0], [7, 5])),
    ):
        scores, values = shift + random.normal(size=(5, 12)), random.normal(size=(12, 4))
        parts = [_attend(scores[:, keys], values[keys]) for keys in (slice(0, 3), slice(3, 7), slice(7, 12))]
        with np.errstate(all="ignore"):
            first = pair(call(answer, *parts[0], *parts[1]), "o, z")
            o, z = map(np.asarray, pair(call(answer, *map(np.asarray, first), *parts[2]), "o, z"))
        whole_o, whole_z = _attend(scores, values)
        for what, found, wanted in (("o", o, whole_o), ("z", z, whole_z)):
            good = found.shape == wanted.shape and bool(np.allclose(found, wanted, rtol=1e-9))
            shown = "right" if good else str(np.reshape(found, -1)[:3])
            small = not np.any(shift)
            right_if_small &= good or not small
            why = "exp(1000) is inf, exp(-1000) is 0, and inf / inf is nan" if right_if_small and not small else ""
            expected = "" if good else str(wanted.reshape(-1)[:3])
            yield Finding(good, f"{what} of three blocks, {name}", shown, expected, why)


@judges(
    26,
    "fair shares of a causal sequence",
    """
In causal attention, the token at position i attends to i + 1 tokens. If four ranks get consecutive parts of a sequence,
the last has about seven times as much work as the first. Spread the tokens so that all ranks have equally many tokens
and the same work, and each has at most two runs of consecutive tokens.

```python
def share(tokens, p, r):                 # returns the positions of rank r's tokens; tokens is a multiple of 2p
    return range(r * tokens // p, (r + 1) * tokens // p)
```
""",
    "Early tokens are cheap and late ones expensive: give each rank some of both.",
    "Cut the sequence into 2p pieces, and give rank r the r-th from the front and the r-th from the back.",
)
def _share(answer: Any) -> Iterator[Finding]:
    for tokens, p in ((16, 2), (48, 3), (64, 4)):
        name = f"{tokens} tokens on {p} ranks"
        places = [[int(i) for i in call(answer, tokens, p, r)] for r in range(p)]
        times = Counter(i for own in places for i in own)
        wrong = next((i for i in (*range(tokens), *times) if times[i] != (1 if 0 <= i < tokens else 0)), None)
        if wrong is not None:
            often = counted(times[wrong], "time")
            raise Failed(name, f"token {wrong} is there {often}", f"0 to {tokens - 1}, once each")
        yield at_most(f"tokens of a rank, {name}", max(map(len, places)), tokens // p)
        work = [sum(i + 1 for i in own) for own in places]
        why = f"the ranks' work, i + 1 for the token at i: {', '.join(map(str, work))}"
        yield at_most(f"most work of a rank / least, {name}", max(work) / max(1, min(work)), 1.0, why=why)
        runs = max(sum(b - a != 1 for a, b in zip(sorted(own), sorted(own)[1:], strict=False)) + 1 for own in places)
        yield at_most(f"runs of tokens, {name}", runs, 2)
