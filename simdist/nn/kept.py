"""Kept: an array that a layer keeps until backward, and how ranks share such arrays."""

from typing import NamedTuple

__all__ = ["Cut", "Kept"]


class Kept(NamedTuple):
    """One array that a layer keeps, in this implementation and in the paper's.

    Attributes:
        layer: the layer whose context holds it, in each block if it begins with a dot.
        what: its contents.
        num_bytes: its size here.
        paper_bytes: its size in the paper, scaled from the paper's 2 bytes per activation to those here.
        why: the reason for the difference, if there is one.
        blocks: how many blocks hold one; 1 around the blocks.
    """

    layer: str
    what: str
    num_bytes: int
    paper_bytes: int
    why: str = ""
    blocks: int = 1


class Cut(NamedTuple):
    """How ranks share the activations of a model.

    Attributes:
        tensor: t, the number of ranks that share heads, hidden features and the vocabulary.
        sharded: whether they also share everything else, along the sequence.
        sequence: p, the number of ranks that share the tokens of each text.
        ring: whether these use ring attention; else each attends to whole texts with some of the heads.
    """

    tensor: int = 1
    sharded: bool = False
    sequence: int = 1
    ring: bool = False

    @property
    def inside(self) -> int:
        """The number of parts of activations between two layers that are cut over t."""
        return self.tensor * self.sequence

    @property
    def outside(self) -> int:
        """The number of parts of all other activations."""
        return self.inside if self.sharded else self.sequence
