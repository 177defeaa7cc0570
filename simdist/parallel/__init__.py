"""Where a model meets the ranks."""

from simdist.parallel.data_parallel import DataParallel

__all__ = ["DataParallel"]
