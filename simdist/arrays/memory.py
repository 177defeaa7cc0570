"""Memory: how this process reuses freed memory."""

import ctypes

__all__ = ["keep_freed_memory"]

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3  # glibc's malloc.h
_LARGEST = 32 << 20  # what malloc takes at most for a threshold of mmap
_PAD = 64 << 20


def keep_freed_memory() -> bool:
    """Let arrays reuse the memory of earlier ones, if the C library supports it.

    By default glibc gives a large array's memory back to the system when it is freed, and the next one of
    that size, which a training step makes at once, is mapped and zeroed anew, page by page. The process then
    keeps the most memory that it ever had.

    Returns:
        Whether it is supported.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    return all(
        mallopt(option, value) == 1
        for option, value in ((_MMAP_THRESHOLD, _LARGEST), (_TRIM_THRESHOLD, 2**31 - 1), (_TOP_PAD, _PAD))
    )
