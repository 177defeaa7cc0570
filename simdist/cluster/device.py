"""Device: what one rank computes with."""

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from simdist.cluster.limits import check_least, check_positive, check_share
from simdist.errors import ArgumentError
from simdist.words import meant

__all__ = ["Device"]

_NUMBERS = "float64", "float32", "bfloat16", "float16", "float8", "float4"
_OTHER_NAMES = {"fp64": "float64", "fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
_OTHER_NAMES |= {"fp8": "float8", "fp4": "float4", "nvfp4": "float4", "mxfp4": "float4"}


@dataclass(frozen=True, slots=True)
class Device:
    """A processor by its roofline model: limited by its arithmetic or by its memory, whichever is slower.

    Args:
        name: the maker's name for it.
        flops_per_s: floating-point operations a second, dense, of 16-bit numbers: its peak.
        memory_bytes_per_s: bytes a second between memory and arithmetic, reads and writes together: its peak.
        memory_bytes: how much it holds.
        flops_efficiency, memory_efficiency: the shares of these peak rates that programs reach.
        float32_flops_per_s, float64_flops_per_s, float8_flops_per_s, float4_flops_per_s: operations a second on
            these; 0 for the same rate. For float32 on matrix units that round it (TF32), give theirs.
        bfloat16_memory_bytes_per_s, float16_memory_bytes_per_s: bytes a second of memory while it computes in these;
            0 for the same rate. A CPU is slower: it widens them to float32 before arithmetic, and rounds results.

    Raises:
        ArgumentError: one of these is not above 0 (of those that may be 0, below 0 or infinite), or an efficiency is
            above 1.
    """

    name: str
    flops_per_s: float
    memory_bytes_per_s: float
    memory_bytes: float
    flops_efficiency: float = 1.0
    memory_efficiency: float = 1.0
    float32_flops_per_s: float = 0.0
    float64_flops_per_s: float = 0.0
    float8_flops_per_s: float = 0.0
    float4_flops_per_s: float = 0.0
    bfloat16_memory_bytes_per_s: float = 0.0
    float16_memory_bytes_per_s: float = 0.0

    def __post_init__(self) -> None:
        check_positive(self, "flops_per_s", "memory_bytes_per_s", "memory_bytes")
        check_share(self, "flops_efficiency", "memory_efficiency")
        check_least(self, 0, *(each.name for each in fields(self) if each.default == 0))

    def computing_in(self, dtype: Any) -> "Device":
        """This device, with its rates for numbers of this dtype as its rates.

        Args:
            dtype: also by a name such as "bf16" or "fp8".

        Raises:
            ArgumentError: they are integers or the like, whose rate is not known.
        """
        try:
            name = np.dtype(dtype).name
        except TypeError:  # NumPy does not know it by this name
            name = str(dtype)
        numbers = meant(name.partition("_")[0], _NUMBERS, _OTHER_NAMES)  # float8_e4m3 is as fast as float8_e5m2
        if numbers is None:
            raise ArgumentError(f"{self.name} computing in {name}; needs floating-point numbers: {', '.join(_NUMBERS)}")
        flops = getattr(self, f"{numbers}_flops_per_s", 0.0) or self.flops_per_s
        num_bytes = getattr(self, f"{numbers}_memory_bytes_per_s", 0.0) or self.memory_bytes_per_s
        return replace(self, flops_per_s=flops, memory_bytes_per_s=num_bytes)

    def seconds(self, flops: float, num_bytes: float) -> float:
        """How long this many operations on this many bytes take: the slower of the two."""
        return max(flops / self.reached_flops_per_s, num_bytes / self.reached_bytes_per_s)

    @property
    def ridge_flops_per_byte(self) -> float:
        """The operations a byte from which on arithmetic is the limit, not memory: 295 of an H100, 240 of a TPU v5e.

        A few rows times a large matrix of 16-bit numbers have about as many as there are rows.

        Source: Williams, Waterman, Patterson 2009, CACM 52(4), 65-76 (the ridge point of the roofline).
        """
        return self.reached_flops_per_s / self.reached_bytes_per_s

    @property
    def reached_flops_per_s(self) -> float:
        """The rate of arithmetic that programs reach."""
        return self.flops_per_s * self.flops_efficiency

    @property
    def reached_bytes_per_s(self) -> float:
        """The rate of memory that programs reach."""
        return self.memory_bytes_per_s * self.memory_efficiency

    @property
    def reduced_bytes_per_s(self) -> float:
        """The rate of x += y in bytes of x: two reads and a write each. Its inverse is the papers' gamma."""
        return self.reached_bytes_per_s / 3
