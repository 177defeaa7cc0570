"""Kind: the category of a span, derived from its name, so that counts and colours always agree."""

import re
from functools import lru_cache

__all__ = ["COLLECTIVES", "COMMUNICATING", "COMPUTING", "MESSAGES", "kind"]

MESSAGES = ("send", "recv")

COLLECTIVES = (
    "all_reduce",
    "reduce_scatter",
    "all_gather",
    "all_to_all",
    "broadcast",
    "reduce",
    "scatter",
    "gather",
    "barrier",
)

COMMUNICATING = (*COLLECTIVES, *MESSAGES, "move", "wait")
"""What is not computing; a move is a read or write in shared memory."""

COMPUTING = ("compute", "forward", "backward", "weight gradient", "update")

_PIPELINE = re.compile(r"\d*([FBIW])\d+")
_PAIR = re.compile(r"\d*F\d+&\d*[BI]\d+")
_LETTERS = {"F": "forward", "B": "backward", "I": "backward", "W": "weight gradient"}


@lru_cache(maxsize=4096)
def kind(name: str) -> str:
    """One of COMMUNICATING, COMPUTING, "disk", "state", or "other".

    The first word decides: "all_reduce ring" is an all_reduce. A pipeline's actions, such as F0 and 2W1, are
    known by their letter, and a pair of them done at once, such as F8&B0, computes. What is "other" depends
    on what it holds: with nothing recorded inside, it is computing under a name of its own; else it is a
    frame, such as a training step, around what it holds.
    """
    word = name.partition(" ")[0]
    if name in COMPUTING or word in COMMUNICATING or word in ("disk", "state"):
        return name if name in COMPUTING else word
    action = _PIPELINE.fullmatch(word)
    if action:
        return _LETTERS[action[1]]
    if _PAIR.fullmatch(word):
        return "compute"
    return word if word in COMPUTING else "other"
