"""ZeRO: stages 1 to 3, FSDP and offload."""

from simdist.parallel.zero.offload import Offload
from simdist.parallel.zero.zero import FSDP, ZeRO

__all__ = ["FSDP", "Offload", "ZeRO"]
