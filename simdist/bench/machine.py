"""Machine: this machine as a cluster for which training can be predicted, measured on real ranks."""

from dataclasses import replace
from statistics import median
from typing import cast

import numpy as np

from simdist.arrays import Meter, metered
from simdist.arrays.memory import keep_freed_memory
from simdist.bench.measure import measure_machine
from simdist.cluster import Cluster
from simdist.comm import Communicator
from simdist.environment import memory_bytes
from simdist.launch import run
from simdist.nn import functional as f
from simdist.training.peak import matmul_flops_per_s

__all__ = ["measured_cluster"]

_TOKENS, _WIDTH = 1024, 256  # of the activations that are passed over: more than a core's cache holds
_PASSES = 20  # after one for warm-up; the median counts


def measured_cluster(ranks: int) -> Cluster:
    """This machine as real ranks measure it, all at once. Starts two jobs.

        device    flops_per_s           of products of matrices, which are of float32 or float64
                  memory_bytes_per_s    of the operations between them: what they count as read and written, in the
                                        time that NumPy takes
                  memory_bytes          a rank's part of all memory
        links     alpha and beta        by ping-pong

    Args:
        ranks: at least 1. Their number matters: they share cores, caches and memory. A single rank measures no links;
            two do that in its place.
    """
    links = cast(Cluster, measure_machine(ranks))
    found = run(_rates, ranks, world="mpi", record=False, check=False).results
    single, double, passes = np.median(found, axis=0).tolist()
    rates = {"flops_per_s": single, "float32_flops_per_s": single, "float64_flops_per_s": double}
    device = replace(links.device, memory_bytes_per_s=passes, memory_bytes=memory_bytes() / ranks, **rates)
    return replace(links, device=device)


def _rates(comm: Communicator) -> list[float]:
    """Operations a second in float32 and in float64; bytes a second."""
    keep_freed_memory()
    flops = [matmul_flops_per_s(comm, dtype) for dtype in (np.float32, np.float64)]
    return [*flops, _passed_bytes_per_s(comm)]


def _passed_bytes_per_s(comm: Communicator) -> float:
    """The rate of the passes over memory in a block of a GPT: two norms and the activation of four times the width."""
    x = np.linspace(-4, 4, _TOKENS * _WIDTH, dtype=np.float32).reshape(_TOKENS, _WIDTH)
    wide, gain, bias = np.tile(x, 4), np.ones(_WIDTH, np.float32), np.zeros(_WIDTH, np.float32)
    rates = []
    for _ in range(1 + _PASSES):
        comm.barrier()
        with metered(meter := Meter()):
            start_s = comm.clock()
            f.layer_norm(f.layer_norm(x, gain, bias)[0], gain, bias)
            f.gelu(wide)
            rates.append(meter.bytes / (comm.clock() - start_s))
    return median(rates[1:])
