"""Every schedule by name, one family per file: pure functions of stages and micro-batches."""

# Importing a family registers its schedules, in this order.
from simdist.parallel.pipeline.schedules import (  # noqa: F401, I001
    fill_drain,
    one_f_one_b,
    pipedream,
    zero_bubble,
    automatic,
    v_shape,
    chimera,
    bitpipe,
    hanayo,
    gems,
    dualpipe,
)
from simdist.parallel.pipeline.schedules import registry
from simdist.parallel.pipeline.schedules.registry import FILES, OTHER_NAMES, maker, named, options, schedule, schedules

__all__ = ["FILES", "OTHER_NAMES", "maker", "named", "options", "schedule", "schedules"]

registry.close()
