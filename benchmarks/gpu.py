"""simdist on a GPU: checks, then measurements, in less than eight minutes on one card.

    python -m benchmarks.gpu [--ranks 4] [--mib 256] [--out benchmarks/results/card.json] [--skip-checks]

    checks      the tests of kernels, paths and training, on the card, in this process and on real ranks that share it
    bandwidth   of copies on the card, counting bytes read and bytes written
    all-reduce  of arrays on the card, by each path, against 2 p n bytes at that rate, the minimum
    latency     of short messages and short all-reduces
    step        of a GPT, beside PyTorch eager at the same precision, both as a share of the rate of products, and
                beside its prediction from the card's rates of copies and products

Every part runs in separate processes. Without a card the benchmark says so and ends with code 2.
"""

import json
import platform
import subprocess
import sys
import time
from argparse import ArgumentParser, Namespace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.gpu_parts import BATCH, PARTS, SHAPE
from simdist.arrays.kind import device_library
from simdist.cluster import Device, preset
from simdist.errors import SimdistError
from simdist.nn.formulas import matmul_flops
from simdist.planning import Workbench, planned
from simdist.training import Config

__all__ = ["main"]

_CHECK_S, _PART_S = 200.0, 90.0
_CHECKS = ("tests/arrays/test_device.py", "tests/arrays/test_kernels.py", "tests/training/test_device.py")
_RANK_CHECKS = ("tests/comm/test_device.py", "tests/comm/test_device_probe.py")
_ROOT = Path(__file__).parent.parent


def _part(name: str, args: Namespace, *more: str) -> dict[str, Any]:
    """The results of a part, run in a separate process, or why it failed."""
    words = [
        sys.executable,
        "-m",
        "benchmarks.gpu",
        "--part",
        name,
        f"--ranks={args.ranks}",
        f"--mib={args.mib}",
        *more,
    ]
    try:
        done = subprocess.run(words, cwd=_ROOT, capture_output=True, text=True, timeout=_PART_S)
    except subprocess.TimeoutExpired:
        return {"failed": f"not done within {_PART_S:.0f} s"}
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        return {"failed": (done.stderr or done.stdout)[-800:]}
    found: dict[str, Any] = json.loads(lines[-1])
    return found


# -- checks -----------------------------------------------------------------------------------------------


def _checks(args: Namespace) -> dict[str, str]:
    """The tests on the card: the last line of each run."""
    pytest = ["-m", "pytest", "-q", "--device", "cuda", "-p", "no:cacheprovider"]
    runs = {"one rank": [sys.executable, *pytest, "-n", "4", *_CHECKS]}
    for ranks in sorted({2, args.ranks}):
        launcher = ["mpirun", "-n", str(ranks), sys.executable]
        runs[f"{ranks} ranks on the card"] = [*launcher, *pytest, *_RANK_CHECKS]
    found = {}
    for name, words in runs.items():
        try:
            done = subprocess.run(words, cwd=_ROOT, capture_output=True, text=True, timeout=_CHECK_S)
            last = (done.stdout.strip().splitlines() or done.stderr.strip().splitlines() or [""])[-1]
            found[name] = last if done.returncode == 0 else f"FAILED, {last}\n{done.stdout[-1500:]}"
        except (subprocess.TimeoutExpired, OSError) as error:
            found[name] = f"FAILED: {error}"
        print(f"  {name:<28}{found[name].splitlines()[0]}", flush=True)
    return found


# -- the table ----------------------------------------------------------------------------------------------


def _tell_all_reduce(found: dict[str, Any], card: dict[str, Any], args: Namespace) -> None:
    limit_s = 2 * args.ranks * (args.mib << 20) / card["copy_bytes_per_s"]
    print(f"\nall-reduce of {args.ranks} ranks x {args.mib} MiB; at the card's copy rate {limit_s * 1e3:.3f} ms")
    for path, seen in found.items():
        if not isinstance(seen, dict):  # why the part failed
            print(f"  {path:<12} {seen}")
            continue
        if "refused" in seen:
            print(f"  {path:<12} refused: {seen['refused'].splitlines()[0]:.90}")
            continue
        seen["share_of_limit"] = limit_s / seen["all_reduce_s"]
        print(
            f"  {path:<12}{seen['all_reduce_s'] * 1e3:>10.3f} ms, {seen['share_of_limit']:.0%} of the limit, "
            f"{'right' if seen['right'] else 'WRONG'}; 4 KiB {seen['short_all_reduce_s'] * 1e6:.0f} µs, "
            f"message of 8 bytes {seen['message_s'] * 1e6:.0f} µs"
        )
        if seen["host_all_reduce_s"]:
            print(
                f"  {'by the host':<12}{seen['host_all_reduce_s'] * 1e3:>10.3f} ms: the least if MPI has no GPU support"
            )


def _predicted(name: str, card: dict[str, Any]) -> dict[str, float]:
    """The step and its arrays as `simdist predict` has them, on a device of the rates that were measured."""
    rate = card["matmul_flops_per_s"][name]
    device = Device(card["card"], rate, card["copy_bytes_per_s"], card["total_bytes"])
    sizes = {size: getattr(SHAPE, size) for size in ("layers", "width", "heads", "vocabulary")}
    config = Config(
        model="gpt",
        **sizes,
        context_bytes=SHAPE.context,
        flash_attention=SHAPE.flash,
        global_batch_size=BATCH,
        precision="bf16" if name == "bf16" else "float32",
    )
    plan = planned(config, Workbench(preset("h100").with_(device=device), 1))  # one rank uses no links
    return {"step_s": plan.step.seconds, "num_bytes": plan.num_bytes}


def _tell_step(name: str, ours: dict[str, Any], theirs: dict[str, Any], card: dict[str, Any]) -> None:
    flops, peak = matmul_flops(SHAPE, BATCH), card["matmul_flops_per_s"][name]
    for who, seen in (("simdist", ours), ("PyTorch eager", theirs)):
        if "step_s" not in seen:
            print(f"  {name}, {who:<14} {seen.get('failed', 'not installed')[-300:]}")
            continue
        seen["share_of_peak"] = flops / seen["step_s"] / peak
        print(
            f"  {name}, {who:<14}{seen['step_s'] * 1e3:>9.1f} ms, {seen['share_of_peak']:.0%} of the rate of products"
        )
    if "step_s" in ours and "step_s" in theirs:
        ours["times_pytorch"] = theirs["step_s"] / ours["step_s"]
        print(f"  {name}: {ours['times_pytorch']:.2f} x PyTorch's speed")
    if "step_s" in ours:
        predicted = ours["predicted"] = _predicted(name, card)
        print(
            f"  {name}, predicted     {predicted['step_s'] * 1e3:>9.1f} ms, {predicted['num_bytes'] / 1e9:.1f} GB; "
            f"simdist takes {ours['step_s'] / predicted['step_s']:.2f} x as long, "
            f"and the card has {ours['used_bytes'] / 1e9:.1f} GB in use"
        )


def measure(args: Namespace) -> dict[str, Any]:
    """Run all parts, and print results as they come."""
    start_s = time.monotonic()
    found: dict[str, Any] = {"host": platform.platform(), "python": platform.python_version(), "numpy": np.__version__}
    found |= {"ranks": args.ranks, "mib": args.mib}
    if not args.skip_checks:
        print("checks", flush=True)
        found["checks"] = _checks(args)
    card = found["card"] = _part("card", args)
    if "failed" in card:
        print(f"the card: {card['failed']}")
        return found
    print(f"\n{card['card']}, {card['versions']}: copies {card['copy_bytes_per_s'] / 1e12:.2f} TB/s, multiplies")
    print("  " + ", ".join(f"{name} {rate / 1e12:.0f} TFLOP/s" for name, rate in card["matmul_flops_per_s"].items()))
    found["all_reduce"] = _part("all-reduce", args)
    _tell_all_reduce(found["all_reduce"], card, args)
    print(f"\na step of a GPT, batch {BATCH} of {SHAPE.context} tokens", flush=True)
    for name in ("bf16", "tf32"):
        ours = _part("step", args, "--precision", name)
        theirs = _part("pytorch", args, "--precision", name) if find_spec("torch") else {}
        _tell_step(name, ours, theirs, card)
        found[f"step {name}"] = {"simdist": ours, "pytorch": theirs}
    found["seconds"] = time.monotonic() - start_s
    print(f"\n{found['seconds']:.0f} s in all")
    return found


def _arguments() -> Namespace:
    parser = ArgumentParser(description="Checks and figures of simdist on a GPU.")
    parser.add_argument("--ranks", type=int, default=4, help="ranks that share the card (4)")
    parser.add_argument("--mib", type=int, default=256, help="MiB of each rank's array (256)")
    parser.add_argument("--precision", choices=("bf16", "tf32"), default="bf16", help="for --part (bf16)")
    parser.add_argument("--part", choices=list(PARTS), help="run only this part, and print JSON")
    parser.add_argument("--skip-checks", action="store_true", help="measurements only")
    parser.add_argument("--out", type=Path, help="write all results to this JSON file")
    return parser.parse_args()


def main() -> int:
    """Run the benchmark."""
    args = _arguments()
    try:
        if not device_library().num_devices():
            raise SimdistError("no NVIDIA GPU, or no driver for it")
        if args.part:
            print(json.dumps(PARTS[args.part](args)))
            return 0
    except SimdistError as error:
        print(f"benchmarks.gpu needs a card: {error}", file=sys.stderr)
        return 2
    found = measure(args)
    if args.out:
        args.out.write_text(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
