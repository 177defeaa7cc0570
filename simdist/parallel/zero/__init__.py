"""ZeRO: stages 1 to 3, FSDP and offload.

`simdist.parallel.zero.formulas` has the papers' bytes and traffic, `simdist.parallel.zero.infinity` ZeRO-Infinity's.
"""

from simdist.parallel.zero.offload import Offload
from simdist.parallel.zero.zero import FSDP, ZeRO

__all__ = ["FSDP", "Offload", "ZeRO"]
