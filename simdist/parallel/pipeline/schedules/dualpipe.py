"""DualPipe: micro-batches enter at both ends, so that nearly every forward overlaps with a backward, and each hides
the messages of the other.

    p  ranks     n  micro-batches per direction     h  ranks of a half     k  distance from its outer end

A rank has two chunks, 0 and 1. In DualPipe these are stages of two copies of the model, which run down and up the
ranks; rank p-1-r mirrors rank r, with the micro-batches of the other direction. In DualPipeV they are the two stages
of a V, as if DualPipe were folded in the middle: half as many ranks, and one copy.

    1  F⁰                × 2(h-k-1)      4  F⁰&B¹ F¹&B⁰       × n-2h+k+1     7  W I⁰     × h-k-1
    2  F⁰ F¹             × k+1           5  B¹ F¹&B⁰          × h-k-1        8  W        × k+1
    3  I¹ W¹ F¹          × h-k-1         6  B¹ B⁰             × k+1, the second half of these in halves

Source: DeepSeek-AI 2024, DeepSeek-V3 Technical Report, arXiv 2412.19437, section 3.2.1 and figure 5; steps 1 to 8 and
DualPipeV follow their code, github.com/deepseek-ai/DualPipe.
"""

from collections import Counter, deque

from simdist.parallel.pipeline.action import (
    Action,
    Backward,
    BackwardInput,
    BackwardWeight,
    Forward,
    Overlapped,
    Part,
)
from simdist.parallel.pipeline.placement import bidirectional, v_shape
from simdist.parallel.pipeline.schedule import Schedule
from simdist.parallel.pipeline.schedules.registry import named

__all__ = ["dualpipe", "dualpipe_v"]


@named("dualpipe")
def dualpipe(stages: int, micro_batches: int) -> Schedule:
    """Both directions at once: twice the parameters, p + 1 micro-batches kept on every rank.

    The first half of the micro-batches, one more if m is odd, goes down. The paper needs m even and at least 2p; for
    other m, missing micro-batches are left out of its rows.

    Raises:
        ArgumentError: the number of stages is odd.
    """
    p, m = stages, micro_batches
    placement, n_down, n_up = bidirectional(p), (m + 1) // 2, m // 2
    rows = []
    for r in range(p):
        row = _row(p // 2, min(r, p - 1 - r), max(n_down, p))
        down, up = (0, n_down), (n_down, n_up)
        rows.append(_numbered(row, (down, up) if r < p // 2 else (up, down)))
    return Schedule("dualpipe", rows, placement, m)


@named("dualpipe-v")
def dualpipe_v(stages: int, micro_batches: int) -> Schedule:
    """DualPipe folded into a V. The published code needs m of at least 2p; missing micro-batches are left out."""
    p, m = stages, micro_batches
    rows = [_numbered(_row(p, r, max(m, 2 * p)), ((0, m), (0, m))) for r in range(p)]
    return Schedule("dualpipe-v", rows, v_shape(p), m)


class _Writer:
    """Writes a row; the micro-batches of each chunk come in order."""

    def __init__(self) -> None:
        self.row: list[Action] = []
        self._count: Counter[tuple[type[Part], int]] = Counter()
        self._pending: deque[BackwardWeight] = deque()

    def _next(self, kind: type[Part], chunk: int) -> int:
        self._count[kind, chunk] += 1
        return self._count[kind, chunk] - 1

    def forward(self, chunk: int) -> None:
        """F."""
        self.row.append(Forward(self._next(Forward, chunk), chunk))

    def backward(self, chunk: int, halves: bool = False) -> None:
        """B; or I, whose W stays pending."""
        i = self._next(Backward, chunk)
        self.row.append(BackwardInput(i, chunk) if halves else Backward(i, chunk))
        if halves:
            self._pending.append(BackwardWeight(i, chunk))

    def both(self, forward: int, backward: int) -> None:
        """F&B."""
        f, b = Forward(self._next(Forward, forward), forward), Backward(self._next(Backward, backward), backward)
        self.row.append(Overlapped(f, b))

    def weight(self) -> None:
        """The oldest pending W."""
        self.row.append(self._pending.popleft())


def _row(h: int, k: int, n: int) -> list[Action]:
    """Steps 1 to 8 above, the micro-batches of each chunk numbered from 0; n is at least 2h."""
    write = _Writer()
    for _ in range(2 * (h - k - 1)):  # step 1
        write.forward(0)
    for _ in range(k + 1):  # step 2
        write.forward(0)
        write.forward(1)
    for _ in range(h - k - 1):  # step 3
        write.backward(1, halves=True)
        write.weight()
        write.forward(1)
    for i in range(n - 2 * h + k + 1):  # step 4
        if i == 0 and k == h - 1:  # not a pair, so that the forward's output is ready sooner
            write.forward(0)
            write.backward(1)
        else:
            write.both(0, 1)
        write.both(1, 0)
    for _ in range(h - k - 1):  # step 5
        write.backward(1)
        write.both(1, 0)
    for i in range(2 * (k + 1)):  # step 6
        write.backward((i + 1) % 2, halves=i > k)
    for _ in range(h - k - 1):  # step 7
        write.weight()
        write.backward(0, halves=True)
    for _ in range(k + 1):  # step 8
        write.weight()
    return write.row


def _numbered(row: list[Action], directions: tuple[tuple[int, int], tuple[int, int]]) -> list[Action]:
    """The row with micro-batches numbered as in the batch, without missing ones.

    Args:
        directions: for each chunk, its first micro-batch and their number.
    """
    numbered: list[Action] = []
    for action in row:
        parts = [
            type(part)(directions[part.chunk][0] + part.micro_batch, part.chunk)
            for part in action.parts
            if part.micro_batch < directions[part.chunk][1]
        ]
        match parts:
            case [Forward() as forward, Backward() as backward]:
                numbered.append(Overlapped(forward, backward))
            case _:
                numbered += parts
    return numbered
