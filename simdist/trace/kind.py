"""Kind: the category of a span, from its name, so that counts and colours agree."""

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
"""All kinds of communication; a move is a read or write in shared memory."""

COMPUTING = ("compute", "forward", "backward", "weight gradient", "update")

_PIPELINE = re.compile(r"\d*([FBIW])\d+")
_PAIR = re.compile(r"\d*F\d+&\d*[BI]\d+")
_LETTERS = {"F": "forward", "B": "backward", "I": "backward", "W": "weight gradient"}


@lru_cache(maxsize=4096)
def kind(name: str) -> str:
    """One of COMMUNICATING, COMPUTING, "disk", "state", or "other".

    The first word decides: "all_reduce ring" is an all_reduce. A pipeline's actions, such as F0 and 2W1, are
    recognized by their letter; a pair of them executed at once, such as F8&B0, is computing. An "other" span that
    contains no spans is computing under a custom name; otherwise it is only a frame, such as a training step.
    """
    if name in COMPUTING:  # one of these has two words
        return name
    word = name.partition(" ")[0]
    if word in (*COMMUNICATING, *COMPUTING, "disk", "state"):
        return word
    action = _PIPELINE.fullmatch(word)
    if action:
        return _LETTERS[action[1]]
    return "compute" if _PAIR.fullmatch(word) else "other"
