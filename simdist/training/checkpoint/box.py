"""Box: a part of a tensor that is a range of indices along each axis."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from simdist.errors import ArgumentError

__all__ = ["Box", "overlapping"]

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Box:
    """Indices start <= i < stop along each axis of a tensor. A scalar has no axes: its box is all of it."""

    spans: tuple[tuple[int, int], ...]

    @classmethod
    def whole(cls, shape: Shape) -> "Box":
        """All of a tensor."""
        return cls(tuple((0, length) for length in shape))

    @classmethod
    def of(cls, index: Iterable[slice], shape: Shape) -> "Box":
        """The box that tensor[index] views; axes that the index does not name are taken whole.

        Raises:
            ArgumentError: it has more axes than the tensor, or a step.
        """
        slices = tuple(index)
        if len(slices) > len(shape) or any(s.step not in (None, 1) for s in slices):
            raise ArgumentError(f"{slices} is no box in a tensor of shape {shape}: one slice an axis, without steps")
        slices += (slice(None),) * (len(shape) - len(slices))
        ends = [s.indices(length)[:2] for s, length in zip(slices, shape, strict=True)]
        return cls(tuple((start, max(start, stop)) for start, stop in ends))

    @classmethod
    def stretch(cls, start: int, stop: int, shape: Shape) -> list["Box"]:
        """Items start … stop-1 of a tensor in C order, as boxes that follow each other in that order.

            . . # #     the end of a row
            # # # #     whole rows
            # # # #
            # . . .     the beginning of a row

        So a tensor of n axes takes 2n-1 boxes at most.
        """
        if start >= stop:
            return []
        if not shape:
            return [cls(())]
        rest = shape[1:]
        row = math.prod(rest)
        (first, head), (last, tail) = divmod(start, row), divmod(stop, row)
        if first == last:
            return cls._in_row(first, head, tail, rest)
        boxes = cls._in_row(first, head, row, rest) if head else []
        first += head > 0
        if first < last:
            boxes.append(cls(((first, last), *cls.whole(rest).spans)))
        return boxes + cls._in_row(last, 0, tail, rest)

    @classmethod
    def _in_row(cls, row: int, start: int, stop: int, rest: Shape) -> list["Box"]:
        return [cls(((row, row + 1), *box.spans)) for box in cls.stretch(start, stop, rest)]

    @property
    def shape(self) -> Shape:
        """Its extent along each axis."""
        return tuple(stop - start for start, stop in self.spans)

    @property
    def size(self) -> int:
        """How many items it holds."""
        return math.prod(self.shape)

    def fits(self, shape: Shape) -> bool:
        """Whether it is inside a tensor of this shape."""
        return len(self.spans) == len(shape) and all(
            0 <= start <= stop <= length for (start, stop), length in zip(self.spans, shape, strict=True)
        )

    def common(self, other: "Box") -> "Box | None":
        """The intersection; None if it is empty."""
        pairs = zip(self.spans, other.spans, strict=True)
        spans = tuple((max(a, c), min(b, d)) for (a, b), (c, d) in pairs)
        return Box(spans) if all(start < stop for start, stop in spans) else None

    def without(self, other: "Box") -> "list[Box]":
        """The rest of it outside the other, as boxes that do not overlap: at most two an axis."""
        common = self.common(other)
        if common is None:
            return [self]
        rest: list[Box] = []
        for axis, ((start, stop), (first, last)) in enumerate(zip(self.spans, common.spans, strict=True)):
            for side in ((start, first), (last, stop)):
                if side[0] < side[1]:  # cut off along this axis; further axes cut what is left
                    rest.append(Box((*common.spans[:axis], side, *self.spans[axis + 1 :])))
        return rest

    def rows(self, part: "Box") -> "tuple[int, Box]":
        """The whole rows of this box that hold `part`: how many of its items come before them, and their box."""
        if not self.spans:
            return 0, self
        rows = Box(part.spans[:1] + self.spans[1:])
        return (part.spans[0][0] - self.spans[0][0]) * (rows.size // rows.shape[0]), rows

    def holds(self, part: "Box") -> bool:
        """Whether all of `part` is in it."""
        return self.common(part) == part

    def within(self, outer: "Box") -> tuple[slice, ...]:
        """Its index in an array that holds `outer`."""
        pairs = zip(self.spans, outer.spans, strict=True)
        return tuple(slice(start - origin, stop - origin) for (start, stop), (origin, _) in pairs)

    def inside(self, outer: "Box") -> "Box":
        """This box, whose indices count from the corner of `outer`, in indices of the whole tensor."""
        pairs = zip(self.spans, outer.spans, strict=True)
        return Box(tuple((start + origin, stop + origin) for (start, stop), (origin, _) in pairs))

    def __str__(self) -> str:
        return "[" + ", ".join(f"{start}:{stop}" for start, stop in self.spans) + "]"


def overlapping(boxes: Iterable[Box]) -> tuple[Box, Box] | None:
    """Two of these boxes that have an item in common, or None; they are of one tensor, and none is empty.

    A sweep along the first axis, which compares only boxes that overlap there: O(n log n) for rows.
    """
    near: list[Box] = []
    for box in sorted(boxes, key=lambda box: box.spans):
        near = [other for other in near if not box.spans or other.spans[0][1] > box.spans[0][0]]
        for other in near:
            if box.common(other):
                return other, box
        near.append(box)
    return None
