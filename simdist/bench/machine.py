"""Machine: this machine as a cluster for which training can be predicted, measured on real ranks."""

from dataclasses import replace
from math import sqrt
from statistics import median
from typing import Any, cast

import numpy as np

from simdist.arrays import Array, Meter, metered
from simdist.arrays.memory import keep_freed_memory
from simdist.bench.measure import measure_machine
from simdist.cluster import Cluster, Device
from simdist.comm import Communicator
from simdist.comm.solo import SoloCommunicator
from simdist.environment import memory_bytes
from simdist.launch import run
from simdist.nn import functional as f
from simdist.parallel import DataParallel
from simdist.planning import Workbench, planned
from simdist.training import Config
from simdist.training.methods import recipe
from simdist.training.models import build
from simdist.training.peak import matmul_flops_per_s

__all__ = ["measured_cluster"]

_TOKENS, _WIDTH = 1024, 256  # of the activations that are passed over: more than a core's cache holds
_PASSES = 20  # after one for warm-up; the median counts
_STEPS = 8  # likewise
_SHORT = {"bf16": "bfloat16_memory_bytes_per_s", "fp16": "float16_memory_bytes_per_s"}
_HALVINGS, _LEAST = 14, 1e-3  # of the range of rates: down to a thousandth of float32's, to 0.05%


def measured_cluster(ranks: int) -> Cluster:
    """This machine as real ranks measure it, all at once. Starts two jobs.

        device    flops_per_s           of products of matrices, which are of float32 or float64
                  memory_bytes_per_s    of the operations between them: what they count as read and written, in the
                                        time that NumPy takes
                  bfloat16_…, float16_memory_bytes_per_s
                                        with which a step of a small GPT is predicted to take as many times as long
                                        as in float32 as it does: with the widening of factors, which products hide
                  memory_bytes          a rank's part of all memory
        links     alpha and beta        by ping-pong

    Args:
        ranks: at least 1. Their number matters: they share cores, caches and memory. A single rank measures no links;
            two do that in its place.
    """
    links = cast(Cluster, measure_machine(ranks))
    found = run(_rates, ranks, world="mpi", record=False, check=False).results
    single, double, passes, *longer = np.median(found, axis=0).tolist()
    rates = {"flops_per_s": single, "float32_flops_per_s": single, "float64_flops_per_s": double}
    device = replace(links.device, memory_bytes_per_s=passes, memory_bytes=memory_bytes() / ranks, **rates)
    cluster = replace(links, device=device)
    for precision, times in zip(_SHORT, longer, strict=True):
        device = _with_rate(device, precision, _fitted(cluster, precision, times))
    return replace(cluster, device=device)


def _rates(comm: Communicator) -> list[float]:
    """Operations a second in float32 and in float64; bytes a second; and as `_longer`."""
    keep_freed_memory()
    flops = [matmul_flops_per_s(comm, dtype) for dtype in (np.float32, np.float64)]
    return [*flops, _passed_bytes_per_s(comm), *_longer(comm)]


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


def _config(precision: str) -> Config:
    return Config(model="gpt", layers=1, global_batch_size=8, precision=precision)


def _longer(comm: Communicator) -> list[float]:
    """How many times as long as in float32 a step takes in each precision of 16 bits, whose numbers a CPU widens."""
    config = _config("float32")
    windows = np.resize(np.arange(256, dtype=np.uint8), (config.global_batch_size, config.context_bytes + 1))
    alone = SoloCommunicator()
    methods = [DataParallel(build(config), alone, recipe(_config(x)), config.seed) for x in ("float32", *_SHORT)]
    times_s = np.array([[_step_s(comm, method, windows) for method in methods] for _ in range(1 + _STEPS)])
    longer: list[float] = np.median(times_s[1:, 1:] / times_s[1:, :1], axis=0).tolist()
    return longer


def _step_s(comm: Communicator, method: DataParallel, windows: Array) -> float:
    comm.barrier()
    start_s = comm.clock()
    method.backward(windows, method.update.scale)
    method.step(0.0)
    return comm.clock() - start_s


def _fitted(cluster: Cluster, precision: str, times: float) -> float:
    """The rate of memory with which a step in this precision is predicted to take so many times as long as in float32;
    at most float32's.
    """
    high = cluster.device.memory_bytes_per_s
    low, goal_s = high * _LEAST, times * _predicted_s(cluster, "float32")
    for _ in range(_HALVINGS):
        middle = sqrt(low * high)
        if _predicted_s(cluster.with_(device=_with_rate(cluster.device, precision, middle)), precision) > goal_s:
            low = middle
        else:
            high = middle
    return high


def _predicted_s(cluster: Cluster, precision: str) -> float:
    return planned(_config(precision), Workbench(cluster, 1)).step.seconds


def _with_rate(device: Device, precision: str, bytes_per_s: float) -> Device:
    own: dict[str, Any] = {_SHORT[precision]: bytes_per_s}
    return replace(device, **own)
