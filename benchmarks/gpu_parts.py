"""The parts of benchmarks.gpu that use the card, each run in separate processes."""

import os
import time
from argparse import Namespace
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

import numpy as np

import simdist as sd
from simdist.arrays import empty, moved
from simdist.arrays.kind import device_library
from simdist.arrays.matmul import matmul
from simdist.collectives import all_reduce
from simdist.comm import Communicator
from simdist.comm.device import use_device
from simdist.errors import SimdistError
from simdist.nn import Shape, gpt
from simdist.parallel import DataParallel, Recipe
from simdist.parallel.precision import precision

__all__ = ["BATCH", "PARTS", "SHAPE"]

SHAPE = Shape(layers=12, width=768, heads=12, context=1024, vocabulary=50304, flash=True)
"""Some 124 million parameters."""
BATCH = 8
_STEPS = 12
_LARGE = 8192
_ROUNDS = 20


def _event_s(turn: Callable[[], Any], repeats: int = _ROUNDS) -> float:
    """The median time of a turn on the card, by CUDA events; the first two turns do not count."""
    library = device_library()
    seconds: list[float] = []
    for _ in range(repeats + 2):
        start, end = library.Event(timing=True), library.Event(timing=True)
        start.record()
        turn()
        end.record()
        end.synchronize()
        seconds.append(library.milliseconds(start, end) / 1e3)
    return median(seconds[2:])


def _wall_s(comm: Communicator, turn: Callable[[], Any], repeats: int = _ROUNDS) -> float:
    """The median over turns of the slowest rank's time; ranks start together, and wait for the card."""
    seconds: list[float] = []
    for _ in range(repeats + 2):
        comm.device.synchronize()
        comm.barrier()
        start_s = comm.clock()
        turn()
        comm.device.synchronize()
        seconds.append(comm.clock() - start_s)
    slowest = np.array(seconds[2:])
    all_reduce(slowest, comm, "max")
    return float(np.median(slowest))


def _filled(shape: Any, dtype: Any) -> Any:
    """An array on the card."""
    x = empty("cupy", shape, dtype)
    x[...] = 1
    return x


# -- parts ------------------------------------------------------------------------------------------------


def _card(_: Namespace) -> dict[str, Any]:
    """The card, and its rates of copies and of matrix products."""
    comm = sd.world()
    use_device(comm, "cuda")
    library = device_library()
    free_bytes, total_bytes = library.memory_bytes()
    x, y = _filled(1 << 30, np.uint8), _filled(1 << 30, np.uint8)
    copy_s = _event_s(lambda: np.copyto(y, x))
    rates = {}
    for name in ("bf16", "fp16", "float32"):
        a, c = (_filled((_LARGE, _LARGE), precision(name).dtype) for _ in range(2))
        a[...] = moved(np.random.default_rng(0).standard_normal((_LARGE, _LARGE)), a)
        for tf32 in ("0", "1") if name == "float32" else ("0",):
            os.environ["SIMDIST_TF32"] = tf32
            found_s = _event_s(partial(matmul, a, a, out=c), 8)
            rates["tf32" if tf32 == "1" else name] = 2 * _LARGE**3 / found_s
    return {
        "card": library.name(),
        "versions": library.versions(),
        "free_bytes": free_bytes,
        "total_bytes": total_bytes,
        "copy_bytes_per_s": (2 << 30) / copy_s,
        "matmul_flops_per_s": rates,
    }


def _paths(comm: Communicator, path: str, num_bytes: int) -> dict[str, Any]:
    """All-reduces and messages of device arrays by one path, on one of the ranks that share the card."""
    try:
        device = use_device(comm, "cuda", path)
    except SimdistError as error:
        return {"refused": str(error)}
    n, p, r = num_bytes // 4, comm.size, comm.rank
    x = comm.empty(n, np.float32)
    x[...] = 1 + r
    all_reduce(x, comm)
    right = bool((x == p * (p + 1) / 2).all())
    x[...] = 1
    seconds = _wall_s(comm, lambda: all_reduce(x, comm), 5 if device.path == "staged" else _ROUNDS)
    short, one = comm.empty(1024, np.float32), _filled(1, np.float64)
    short[...] = 1
    other, room = r ^ 1, _filled(1, np.float64)

    def ping() -> None:
        if other < p:
            comm.sendrecv(one, other, room, other)

    return {
        "words": device.words,
        "right": right,
        "all_reduce_s": seconds,
        "short_all_reduce_s": _wall_s(comm, lambda: all_reduce(short, comm)),
        "message_s": _wall_s(comm, ping),
        "host_all_reduce_s": _on_host(comm, num_bytes) if device.path == "staged" else None,
    }


def _on_host(comm: Communicator, num_bytes: int) -> float:
    """The least time for an MPI without GPU support: copy all to the host, reduce there, and copy all back."""
    library, n = device_library(), num_bytes // 4
    far, host = _filled(n, np.float32), comm.split(0)
    if host is None:
        return 0.0
    use_device(host, "cpu")
    near, stream = host.empty(n, np.float32), library.Stream()

    def turn() -> None:
        library.copy_out(far, near.view(np.uint8), stream.raw)
        stream.raw.synchronize()
        all_reduce(near, host)
        library.copy_in(far, near.view(np.uint8), stream.raw)
        stream.raw.synchronize()

    return _wall_s(comm, turn, 3)


def _all_reduce(args: Namespace) -> dict[str, Any]:
    """All paths on real ranks."""
    found = {}
    for path in ("ipc", "staged", "cuda-aware"):
        run = sd.run(_paths, args.ranks, world="mpi", args=(path, args.mib << 20), timeout_s=60.0)
        found[path] = run.results[0]
    return found


def _step(args: Namespace) -> dict[str, Any]:
    """A training step of simdist's GPT."""
    comm = sd.world()
    use_device(comm, "cuda")
    recipe = Recipe("adamw", weight_decay=0.1, precision=precision("float32" if args.precision == "tf32" else "bf16"))
    os.environ["SIMDIST_TF32"] = str(int(args.precision == "tf32"))
    method = DataParallel(gpt(SHAPE), comm, recipe, 0)
    noise, scale = np.random.default_rng(0), 1 / (BATCH * SHAPE.context)
    seconds, losses = [], []
    for _ in range(_STEPS):
        windows = noise.integers(256, size=(BATCH, SHAPE.context + 1)).astype(np.int64)
        start_s = time.perf_counter()
        losses.append(method.backward(windows, scale) * scale)
        method.step(1e-4)
        comm.device.synchronize()
        seconds.append(time.perf_counter() - start_s)
    free_bytes, total_bytes = device_library().memory_bytes()
    return {"step_s": median(seconds[3:]), "losses": losses, "used_bytes": total_bytes - free_bytes}


def _pytorch(args: Namespace) -> dict[str, Any]:
    """The same in PyTorch eager: weights and activations of the same precision, with float32 masters for bf16."""
    import torch

    from benchmarks.pytorch_ddp import GPT

    torch.backends.cuda.matmul.allow_tf32 = True
    sizes = {name: getattr(SHAPE, name) for name in ("layers", "width", "heads", "context", "vocabulary")}
    short = args.precision == "bf16"
    model = GPT(**sizes).cuda().to(torch.bfloat16 if short else torch.float32)
    own = list(model.parameters())
    masters = [p.detach().float().clone() for p in own] if short else own
    optimizer = torch.optim.AdamW(masters, lr=1e-4, weight_decay=0.1, fused=True)
    noise, seconds = np.random.default_rng(0), []
    for _ in range(_STEPS):
        windows = torch.from_numpy(noise.integers(256, size=(BATCH, SHAPE.context + 1)).astype(np.int64))
        torch.cuda.synchronize()
        start_s = time.perf_counter()
        model.zero_grad()
        model(windows.cuda()).backward()
        if short:
            for master, p in zip(masters, own, strict=True):
                master.grad = p.grad.float() if p.grad is not None else None
        optimizer.step()
        if short:
            with torch.no_grad():
                for master, p in zip(masters, own, strict=True):
                    p.copy_(master)
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start_s)
    return {"step_s": median(seconds[3:]), "torch": torch.__version__}


PARTS = {"card": _card, "all-reduce": _all_reduce, "step": _step, "pytorch": _pytorch}
"""part(args) -> its results, for JSON."""
