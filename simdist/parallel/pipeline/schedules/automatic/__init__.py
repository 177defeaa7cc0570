"""The automatic scheduler: a search for the schedule with the shortest longest span within a limit of memory."""

from simdist.parallel.pipeline.schedules.automatic.zb_auto import ZB_MEMORY, lower_bound, zb_auto

__all__ = ["ZB_MEMORY", "lower_bound", "zb_auto"]
