"""The automatic scheduler: searches for the schedule whose longest span is shortest, within a memory limit."""

from simdist.parallel.pipeline.schedules.automatic.zb_auto import ZB_MEMORY, lower_bound, zb_auto

__all__ = ["ZB_MEMORY", "lower_bound", "zb_auto"]
