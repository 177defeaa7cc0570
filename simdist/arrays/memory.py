"""Memory: how this process reuses freed memory."""

import ctypes

__all__ = ["keep_freed_memory"]

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3  # glibc's malloc.h
_LARGEST = 32 << 20  # the largest mmap threshold that malloc accepts
_PAD = 64 << 20


def keep_freed_memory() -> bool:
    """Let arrays reuse the memory of earlier ones, if the C library supports it.

    By default glibc returns a large array's memory to the system when it is freed. The next array of that size,
    which a training step soon makes, is then mapped and zeroed again, page by page. After this call the process
    keeps its peak memory instead.

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
