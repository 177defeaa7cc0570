# %% [markdown]
# # 10. On a real GPU
#
# In the other notebooks, a device was a model with two rates: that of its arithmetic and that of its memory. What does
# such a model predict for a card that you do not have? What does it leave out? And does a real card agree?
#
# You need Python and NumPy, and notebook 5. You do not need a GPU: the cells read what was measured on cards from
# [`benchmarks/results`](../benchmarks/results/README.md). If your machine has a card, one cell uses it.

# %%
import json
import subprocess
import sys
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import simdist as sd
from simdist.arrays import Meter, metered, on_host, phantom
from simdist.cluster import Device, preset, presets
from simdist.collectives import formula
from simdist.comm.device import use_device
from simdist.nn import Shape, functional, gpt
from simdist.nn.formulas import matmul_flops
from simdist.optim import AdamW
from simdist.parallel import DataParallel, Recipe
from simdist.parallel.precision import precision
from simdist.plots import style

FOLDER = Path("../benchmarks/results")
H200 = preset("h200")
files = {path.stem: json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))}
results = {name: found for name, found in files.items() if "card" in found.get("card", {})}
for name, found in results.items():
    print(f"{name}: {found['card']['card']}, {found['card']['versions']}")
if not results:
    print("No card has been measured yet. Measured columns are empty below.")

# %% [markdown]
# ## Two rates and a ridge
#
# A card computes at one rate, and reads and writes its memory at another. In the *roofline* model, work of $f$
# floating-point operations on $b$ bytes takes the time $\max(f / \text{arithmetic rate}, b / \text{memory rate})$. Its
# *intensity* is $f/b$. The intensity at which both terms are equal is the card's *ridge*. Work below the ridge is
# bandwidth-bound, and work above it is compute-bound. Where is the ridge of real cards?

# %%
print("          TFLOP/s    TB/s   ridge, FLOP/byte")
for name in presets()[1:]:
    d = preset(name).device
    ridge = d.flops_per_s / d.memory_bytes_per_s
    print(f"{d.name:8}{d.flops_per_s / 1e12:9.0f}{d.memory_bytes_per_s / 1e12:8.2f}{ridge:13.0f}")

# %% [markdown]
# The values are from data sheets: the rate of 16-bit matrix products, and the bandwidth of the memory. On most cards,
# each number that is read has to take part in hundreds of operations; otherwise the arithmetic units wait for memory.
#
# Which parts of a GPT reach that? Every layer reports its floating-point operations and its bytes to a *meter*. The
# meter below also records which function reports, and how long a modelled H200 would take for its work. The model has
# the size of the smallest GPT-2 and consists of phantom arrays; a batch is eight texts (sequences).

# %%
SHAPE, BATCH = Shape(layers=12, width=768, heads=12, context=1024, vocabulary=50304), 8
KINDS = {
    "linear layers": ("linear product",),
    "attention's products": ("attention product", "_weights product", "tile_backward product"),
    "attention's softmax": ("_softmax", "tile_backward", "attention_backward"),
    "flash attention": ("flash_attention", "flash_attention_backward"),
    "bias, residual": ("linear", "linear_backward_weight", "add"),
    "gelu": ("gelu", "gelu_backward"),
    "layer norm": ("layer_norm", "layer_norm_backward_input", "layer_norm_backward_weight"),
    "loss": ("cross_entropy", "cross_entropy_backward"),
    "update": ("_update", "round"),
}
ORDER = [*KINDS, "the rest"]
KIND_OF = {name: kind for kind, names in KINDS.items() for name in names}


# %%
class Listener(Meter):
    """Adds up operations, bytes and seconds on a device by kind of work."""

    def __init__(self, device):
        super().__init__()
        self.device, self.kinds = device, defaultdict(lambda: np.zeros(3))

    def charge(self, flops, bytes):
        super().charge(flops, bytes)
        frame = sys._getframe(1)
        while frame.f_code.co_name == "charge":
            frame = frame.f_back  # up to the caller of simdist.arrays.charge
        name = who = frame.f_code.co_name
        if name == "call":  # which repeats what a function charged for arrays of these shapes
            name = frame.f_locals["function"].__name__
        while who in ("product", "call"):
            frame = frame.f_back
            who = frame.f_code.co_name
        if name == "product":
            name = "linear product" if who.startswith("linear") else f"{who} product"
        self.kinds[KIND_OF.get(name, "the rest")] += flops, bytes, self.device.seconds(flops, bytes)


# %%
def step(comm, shape, batch, name):
    """A training step with phantom arrays: its work by kind, and its time on the rank's clock."""
    recipe = Recipe("adamw", weight_decay=0.1, precision=precision(name))
    method = DataParallel(gpt(shape), comm, recipe, 0, memory=phantom)
    listener, start_s = Listener(comm.cluster.device), comm.clock()
    with metered(listener):
        method.train([phantom((batch, shape.context + 1), np.uint8)], scale=1.0, learning_rate=1e-4)
    return dict(listener.kinds), comm.clock() - start_s


def on(device, shape, batch, name):
    return sd.run(step, ranks=1, cluster=H200.with_(device=device), args=(shape, batch, name)).results[0]


card = H200.device
kinds, step_s = on(card, SHAPE, BATCH, "bf16")
assert np.isclose(sum(s for *_, s in kinds.values()), step_s)
assert kinds["the rest"][0] < 0.001 * sum(flops for flops, *_ in kinds.values()), "a kind of work has no name here"
ridge = card.flops_per_s / card.memory_bytes_per_s
size = f"{gpt(SHAPE).parameters.size:,} weights, {BATCH} texts of {SHAPE.context} tokens"
print(f"{size}, bf16, on a modelled {card.name}")
print(f"{'':22}{'TFLOP':>8}{'GB':>8}{'FLOP/byte':>11}{'ms':>8}  limited by")
for kind, (flops, num_bytes, seconds) in sorted(kinds.items(), key=lambda item: -item[1][2]):
    limit = "arithmetic" if flops / num_bytes > ridge else "memory"
    row = f"{flops / 1e12:8.3f}{num_bytes / 1e9:8.2f}{flops / num_bytes:11.1f}{seconds * 1e3:8.2f}"
    print(f"{kind:22}{row}  {limit}")
print(f"{'a step':46}{step_s * 1e3:11.2f} ms")

# %%
with style.styled():
    fig = style.figure(style.PAGE, 3.0)
    ax = fig.subplots()
    intensities = np.logspace(-2, 4, 200)
    ax.loglog(intensities, [1 / card.seconds(1, 1 / i) / 1e12 for i in intensities], color=style.INK)
    for i, kind in ((i, kind) for i, kind in enumerate(ORDER) if kind in kinds):
        flops, num_bytes, seconds = kinds[kind]
        ax.loglog(
            flops / num_bytes, flops / seconds / 1e12, linestyle="", label=kind, markersize=5.5, **style.series(i)
        )
    ax.axvline(ridge, color=style.INK, linewidth=0.6, linestyle="--")
    ax.text(ridge * 1.15, 0.1, "the ridge")
    ax.set(xlabel="intensity (FLOP/byte)", ylabel="TFLOP/s")
    style.legend(fig, ax.get_legend_handles_labels()[0][: len(kinds)], letters=16)
    left = [kind for kind, (flops, num_bytes, _) in kinds.items() if flops / num_bytes < ridge]
    share = sum(kinds[kind][2] for kind in left) / step_s
    words = f"{len(left)} of {len(kinds)} kinds of work are bandwidth-bound on the {card.name}"
    style.title(fig, f"{words}, and take {share:.0%} of the step")
fig

# %% [markdown]
# Only the linear layers are to the right of the ridge. Attention's products are to its left, because the matrices of
# each head are narrow. Everything else does only a few operations per number, so its time depends on the memory
# bandwidth alone. Look at the table of cards again: from the H100 to the H200 only the memory became faster. For
# bandwidth-bound work, that is all that matters.
#
# ## One pass instead of many
#
# On a given card, bandwidth-bound work gets faster only if it moves fewer bytes. Layer normalization in NumPy is a
# chain of calls: subtract the mean, square, sum, divide, multiply, add. On a card each call is a *kernel*, a program
# that reads its arguments from memory and writes its result back. How many bytes does the whole chain move, and how
# many would a single kernel? The array type below counts them:


# %%
class Counting(np.ndarray):
    """Counts the calls of NumPy's functions, and the bytes that they read and write."""

    calls = moved = 0

    def __array_ufunc__(self, ufunc, method, *inputs, out=None, **more):
        plain = [np.asarray(x) if isinstance(x, Counting) else x for x in inputs]
        if out:
            more["out"] = tuple(np.asarray(x) for x in out)
        y = np.asarray(getattr(ufunc, method)(*plain, **more))
        Counting.calls += 1
        Counting.moved += y.nbytes + sum(x.nbytes for x in plain if isinstance(x, np.ndarray))
        return out[0] if out else y.view(Counting)


def numbers(*shape):
    return np.random.default_rng(0).standard_normal(shape, np.float32).view(Counting)


# %%
x, gain, logits, flat = numbers(64, 768), numbers(768), numbers(64, 8192), numbers(1 << 16)
rule, tokens = AdamW(flat), SHAPE.context * BATCH
work = {  # size here, size in a step of the GPT, and what to call
    "layer norm": (x.size, tokens * SHAPE.width, lambda: functional.layer_norm(x, gain, gain)),
    "gelu": (x.size, 4 * tokens * SHAPE.width, lambda: functional.gelu(x)),
    "softmax and loss": (
        logits.size,
        tokens * SHAPE.vocabulary,
        lambda: functional.cross_entropy(logits, np.zeros(64, np.int64)),
    ),
    "AdamW": (flat.size, gpt(SHAPE).parameters.size, lambda: rule.step(flat, numbers(flat.size), 1e-3)),
}

# %%
passes = {}
print("float32             calls  bytes per number       on an H200: each call    one")
print("                          each call    one          a kernel            kernel")
for name, (size, true_size, do) in work.items():
    Counting.calls = Counting.moved = 0
    with metered(meter := Meter()):
        do()
    many, one = Counting.moved / size, meter.bytes / size
    times = [H200.device.seconds(0, b * true_size) for b in (many, one)]
    passes[name] = many, one, times
    row = f"{many:9.1f}{one:8.1f}{style.seconds(times[0]):>19}{style.seconds(times[1]):>18}"
    print(f"{name:18}{Counting.calls:6} {row}")
    assert many >= one

# %%
with style.styled():
    fig = style.figure(style.PAGE, 2.2)
    ax = fig.subplots()
    y = np.arange(len(passes))
    ax.barh(y - 0.2, [p[0] for p in passes.values()], 0.38, color=style.colour("wait"), label="each call a kernel")
    ax.barh(y + 0.2, [p[1] for p in passes.values()], 0.38, color=style.colour("compute"), label="one kernel")
    for i, (many, one, _) in enumerate(passes.values()):
        ax.text(max(many, one), i, f" {many / one:.1f} times", va="center")
    ax.set_yticks(y, list(passes))
    ax.set(
        xlabel="bytes read and written for each number (float32)", xlim=(0, 1.1 * max(p[0] for p in passes.values()))
    )
    ax.invert_yaxis()
    style.legend(fig, ax.get_legend_handles_labels()[0], letters=18)
    ratios = [many / one for many, one, _ in passes.values()]
    few, most = min(ratios), max(ratios)
    style.title(fig, f"A kernel that reads its inputs only once moves {few:.1f} to {most:.1f} times fewer bytes")
fig

# %% [markdown]
# These kernels are in [`simdist/arrays/kernels`](../simdist/arrays/kernels/norm.py), about a page each. If arrays are
# on a card, `layer_norm` and similar functions call them. On a CPU, the functions work block by block instead: a block
# of rows that fits into a cache passes through the whole chain of NumPy calls.
#
# The same idea saves most of attention's time. Its largest arrays are the scores and the probabilities, with a number
# for each pair of tokens. *FlashAttention* computes them tile by tile and keeps none of them: only queries, keys,
# values and the result go through the memory. Backward computes the scores again, so in all there are more operations
# on far fewer bytes:

# %%
FLASH = replace(SHAPE, flash=True)
flash_kinds, flash_s = on(card, FLASH, BATCH, "bf16")
plain = [kinds[kind] for kind in ("attention's products", "attention's softmax")]
print(f"{'':22}{'TFLOP':>8}{'GB':>8}{'FLOP/byte':>11}{'ms':>8}")
for name, found in (("attention", plain), ("flash attention", [flash_kinds["flash attention"]])):
    flops, num_bytes, seconds = np.sum(found, axis=0)
    print(f"{name:22}{flops / 1e12:8.3f}{num_bytes / 1e9:8.2f}{flops / num_bytes:11.1f}{seconds * 1e3:8.2f}")
print(f"{'a step':49}{step_s * 1e3:8.2f}\n{'a step with flash':49}{flash_s * 1e3:8.2f}")

# %% [markdown]
# With FlashAttention, attention is to the right of the ridge. Its kernel, in
# [`simdist/arrays/kernels/flash.py`](../simdist/arrays/kernels/flash.py), keeps queries and scores on the chip, and
# multiplies with the card's *matrix units*, which do nothing but multiply small matrices.
#
# ## A step, predicted
#
# How long does a step take, and what share of the card's peak does it reach? That share is the time that the matrix
# products would take at the peak rate, divided by the time of the step. (This is hardware FLOPs utilization, HFU; the
# MFU of notebook 9 counts what a model needs, however it is computed.) The answer depends on the *precision*: bf16 has
# 16-bit numbers; float32 has 32-bit ones; TF32 keeps 32 bits in memory, but the matrix units round the factors to 19.
# The rates are from NVIDIA's data sheet of the H200, without sparsity.

# %%
RATES = {"bf16": H200.device.flops_per_s, "tf32": H200.device.flops_per_s / 2, "float32": 67e12}
BATCHES = (1, 2, 4, 8, 16, 32)


def stepped(device, batch, name):
    """A step's work by kind, its time, and its share of the peak."""
    kinds, step_s = on(device, FLASH, batch, "bf16" if name == "bf16" else "float32")
    return kinds, step_s, matmul_flops(FLASH, batch) / device.flops_per_s / step_s


steps = {
    (name, batch): stepped(replace(H200.device, flops_per_s=rate), batch, name)
    for name, rate in RATES.items()
    for batch in BATCHES
}
print("predicted" + "".join(f"{name + ', ms':>15}{'of peak':>9}" for name in RATES))
for batch in BATCHES:
    row = [steps[name, batch] for name in RATES]
    print(f"batch {batch:3}" + "".join(f"{seconds * 1e3:15.1f}{share:9.0%}" for _, seconds, share in row))

# %%
with style.styled():
    fig = style.figure(style.PAGE, 2.9)
    left, right = fig.subplots(1, 2, width_ratios=(3, 2))
    for y, name in enumerate(RATES):
        found, start = steps[name, BATCH][0], 0.0
        for i, kind in ((i, kind) for i, kind in enumerate(ORDER) if kind in found):
            ms = found[kind][2] * 1e3
            left.barh(y, ms, left=start, color=style.series(i)["color"], label=kind if y == 0 else None)
            start += ms
    left.set_yticks(range(len(RATES)), list(RATES))
    left.set(xlabel=f"a step of {BATCH} texts, predicted (ms)")
    left.invert_yaxis()
    for i, name in enumerate(RATES):
        shares = [100 * steps[name, batch][2] for batch in BATCHES]
        right.semilogx(BATCHES, shares, base=2, color=style.INK, marker="osD"[i], linestyle=("-", "--", ":")[i])
        right.text(BATCHES[-1] * 1.25, shares[-1], name, va=("top", "bottom", "center")[i])
    right.set_xticks(BATCHES, BATCHES)
    right.set(xlabel="batch (texts)", ylabel="share of its peak (%)", ylim=(0, 100), xlim=(0.9, 80))
    style.legend(fig, left.get_legend_handles_labels()[0], letters=16)
    ratio, times = RATES["bf16"] / RATES["float32"], steps["float32", BATCH][1] / steps["bf16", BATCH][1]
    words = f"bf16 multiplies {ratio:.0f} times as fast as float32, and its step is {times:.1f} times as fast"
    style.title(fig, words)
fig

# %% [markdown]
# From float32 to TF32, only the matrix products become faster. So the rest takes a larger share of the step, and the
# share of the peak falls. From TF32 to bf16, the products become faster again, but numbers are also half as long.
# Bandwidth-bound work then moves about half the bytes, so the share of the peak falls much less. The update takes the
# same time for every batch, so a larger batch helps until the update no longer matters.
#
# These predictions are lower bounds on the time, because the model leaves out four things:
#
# * It takes time to launch a kernel, which matters most for small batches.
# * No product reaches the peak rate, and no copy the full memory bandwidth.
# * Adding a bias is a pass of its own.
# * In float32, attention does pass its scores through the card's memory, because the kernel above is for 16 bits.
#
# How far from the predictions is a real card? The first comparison is of an all-reduce.
#
# ## Several ranks on one card
#
# Several ranks can share a card. An all-reduce then needs no network, only memory. There are three ways to do it:
#
# * **ipc**: each process maps the others' arrays into its own memory. All $p$ arrays of $n$ bytes are read, and the sum
#   is written to all of them: $2pn$ bytes at the rate of the card's memory. No algorithm can move fewer.
# * **staged**, for an MPI without GPU support: every message goes over PCIe to the host (the computer that the card is
#   plugged into) and back. In a ring, all ranks together send $2n(p-1)$ bytes, all of them over the card's one link.
# * **on the host**, for a program whose collectives have no GPU support: one after the other, all arrays go to the
#   host, are summed there, and go back. That is $2pn$ bytes over the link, and the time of the sums, which the
#   prediction leaves out.

# %%
RANKS, SIZE = 4, 256 << 20  # as in benchmarks.gpu
direct = formula("all_reduce", "direct", ranks=RANKS, num_bytes=SIZE)
ring = formula("all_reduce", "ring", ranks=RANKS, num_bytes=SIZE)
link = H200.host.link_bytes_per_s
ways = {  # bytes of all ranks together, the rate that they share, and where the measurement is in a file
    "ipc": (3 * direct.reduced_bytes * RANKS, H200.device.memory_bytes_per_s, "ipc", "all_reduce_s"),
    "staged": (ring.bytes * RANKS, link, "staged", "all_reduce_s"),
    "on the host": (2 * RANKS * SIZE, link, "staged", "host_all_reduce_s"),
}
assert np.isclose(ways["ipc"][0], 2 * RANKS * SIZE) and np.isclose(ways["staged"][0], 2 * (RANKS - 1) * SIZE)


# %%
def look(found, *path):
    """The value at this path in a file of results, or None."""
    for key in path:
        found = found.get(key) if isinstance(found, dict) else None
    return found


def ms(seconds):
    return "-" if seconds is None else f"{seconds * 1e3:.2f}"


print(f"all-reduce of {RANKS} ranks x {style.size(SIZE)} on one card, predicted for an H200")
print(
    "                GiB    TB/s   predicted, ms" + "".join(f"{name + ', ms':>22}" for name in results or ["measured"])
)
for way, (num_bytes, rate, *place) in ways.items():
    seen = [look(found, "all_reduce", *place) for found in results.values()] or [None]
    row = f"{num_bytes / 2**30:8.2f}{rate / 1e12:8.3f}{num_bytes / rate * 1e3:16.2f}"
    print(f"{way:11}{row}" + "".join(f"{ms(seconds):>22}" for seconds in seen))

# %% [markdown]
# The link to the host is far slower than the card's own memory. That is why simdist tries all paths, uses the best one
# that works, and reports which one and why.
#
# ## On your own card
#
# Two virtual ranks train a small GPT for five steps, first on the CPU, and then on a card that they share, if there is
# one. The code is the same. Only the memory that `comm.empty` allocates differs.


# %%
def learn(comm, device):
    words = use_device(comm, device).words
    small = Shape(layers=2, width=64, heads=4, context=32)
    method = DataParallel(gpt(small), comm, Recipe("adamw", precision=precision("float32")), 0)
    random, losses = np.random.default_rng(comm.rank), []
    for _ in range(5):
        windows = random.integers(256, size=(4, small.context + 1)).astype(np.int64)
        losses.append(float(method.train([windows], 1 / (8 * small.context), 1e-3)) / (4 * small.context))
    return words, losses, np.array(on_host(method.weights))


_, losses, weights = sd.run(learn, ranks=2, args=("cpu",)).results[0]
print("loss, on the CPU ", " ".join(f"{loss:.5f}" for loss in losses))
try:
    words, found, other = sd.run(learn, ranks=2, args=("cuda",)).results[0]
except sd.WorldUnavailable as missing:
    print(f"Passed over: {missing}")
else:
    print("loss, on the card", " ".join(f"{loss:.5f}" for loss in found))
    print(f"largest difference of a weight {np.abs(weights - other).max():.1e}, on {words}")
    assert np.allclose(losses, found, rtol=1e-3)

# %% [markdown]
# ## Measured and predicted
#
# The table has two predictions for each card. One uses only the data sheet. The other uses the card's measured rates of
# copies and products, so what still separates it from a measured step is what the model leaves out.


# %%
def predicted(memory, rates, link):
    """The predictions of the model for a card with these rates."""
    found = {"copies, TB/s": memory / 1e12}
    found |= {f"products in {name}, TFLOP/s": rate / 1e12 for name, rate in rates.items()}
    found["all-reduce by ipc, ms"] = 2 * RANKS * SIZE / memory * 1e3
    found["all-reduce staged, ms"] = 2 * (RANKS - 1) * SIZE / link * 1e3
    found["all-reduce on the host, ms"] = 2 * RANKS * SIZE / link * 1e3
    for name, rate in rates.items():
        device = Device("the card", rate, memory, H200.device.memory_bytes)
        found[f"step in {name}, ms"] = stepped(device, BATCH, name)[1] * 1e3
    return found


def measured(found):
    """The measurements in a file of results; None where there is none."""
    places = {"copies, TB/s": (1e-12, "card", "copy_bytes_per_s")}
    for name in ("bf16", "tf32"):
        places[f"products in {name}, TFLOP/s"] = 1e-12, "card", "matmul_flops_per_s", name
        places[f"step in {name}, ms"] = 1e3, f"step {name}", "simdist", "step_s"
        places[f"PyTorch eager in {name}, ms"] = 1e3, f"step {name}", "pytorch", "step_s"
    places["all-reduce by ipc, ms"] = 1e3, "all_reduce", "ipc", "all_reduce_s"
    places["all-reduce staged, ms"] = 1e3, "all_reduce", "staged", "all_reduce_s"
    places["all-reduce on the host, ms"] = 1e3, "all_reduce", "staged", "host_all_reduce_s"
    seen = {what: (scale, look(found, *path)) for what, (scale, *path) in places.items()}
    return {what: None if value is None else scale * value for what, (scale, value) in seen.items()}


# %%
def compare(found):
    """Three columns for a card: predicted from its data sheet, from its own rates, and measured."""
    called = look(found, "card", "card") or "H200"
    sheet = preset(next((p for p in presets() if p.upper() in called.upper()), "h200"))
    peak, link = sheet.device.flops_per_s, sheet.host.link_bytes_per_s
    first, last = predicted(sheet.device.memory_bytes_per_s, {"bf16": peak, "tf32": peak / 2}, link), measured(found)
    copies, rates = look(found, "card", "copy_bytes_per_s"), look(found, "card", "matmul_flops_per_s")
    own = predicted(copies, {name: rates[name] for name in ("bf16", "tf32")}, link) if copies and rates else {}
    whats = list(dict.fromkeys([*first, *last]))
    return {what: (first.get(what), own.get(what), last[what]) for what in whats}


# %%
tables = {name: compare(found) for name, found in (results or {"an H200, not measured": {}}).items()}
for name, table in tables.items():
    print(name)
    print(f"{'':30}{'by data sheet':>15}{'by own rates':>15}{'measured':>12}")
    for what, columns in table.items():
        cells = ["-" if value is None else f"{value:.2f}" for value in columns]
        print(f"{what:30}{cells[0]:>15}{cells[1]:>15}{cells[2]:>12}")
for name, found in results.items():
    for what, line in found.get("checks", {}).items():
        print(f"{name}, checks, {what}: {line.splitlines()[0]}")


# %%
def timed(what):
    """Whether it is a time that the model predicts."""
    return what.endswith("ms") and "PyTorch" not in what


def bars(tables):
    """Measured times, as multiples of those predicted from the data sheet."""
    with style.styled():
        fig = style.figure(style.PAGE, 2.4)
        ax = fig.subplots()
        whats = [what for what in next(iter(tables.values())) if timed(what)]
        ratios = {name: [(table[w][2] or np.nan) / table[w][0] for w in whats] for name, table in tables.items()}
        height = 0.8 / len(tables)
        for i, (name, ratio) in enumerate(ratios.items()):
            at = np.arange(len(whats)) + (i - (len(tables) - 1) / 2) * height
            ax.barh(at, ratio, height, color=style.series(i)["color"], label=name)
        ax.axvline(1, color=style.INK, linewidth=0.8, linestyle="--")
        ax.set_yticks(range(len(whats)), [what.removesuffix(", ms") for what in whats])
        ax.set(xlabel="measured / predicted from the data sheet")
        ax.invert_yaxis()
        style.legend(fig, ax.get_legend_handles_labels()[0], letters=24)
        far = [r for ratio in ratios.values() for r in ratio if not np.isnan(r)]
        who = f"The {next(iter(tables)).upper()} takes" if len(tables) == 1 else "Cards take"
        style.title(fig, f"{who} {min(far):.1f} to {max(far):.1f} times as long as data sheets allow")
    return fig


have = {name: table for name, table in tables.items() if any(v[2] for what, v in table.items() if timed(what))}
bars(have) if have else print("No card has been measured yet: there is nothing to draw.")

# %% [markdown]
# ## Train on it, and measure it
#
# After `pip install 'simdist[cuda13]'` (or `cuda12`, depending on the driver), `--device cuda` puts the arrays of a run
# on a card. The run first prints which card it uses, which path arrays take to other ranks, and why. Without a card, it
# prints what is missing:

# %%
with TemporaryDirectory() as folder:
    words = "simdist train --model gpt --device cuda --steps 20"
    done = subprocess.run(
        [sys.executable, "-m", *words.split(), "--out", f"{folder}/run"], capture_output=True, text=True, timeout=250
    )
print(f"$ {words}\n{(done.stdout + done.stderr).replace(folder, '…')}\nends with code {done.returncode}")

# %% [markdown]
# `--ranks 4` starts four ranks. They share one card, or have one each if there are four. To add your card to this
# notebook, run this in the root of the repository:
#
# ```sh
# python -m benchmarks.gpu --out benchmarks/results/<card>.json
# ```
#
# It first checks kernels, paths between ranks and training against the CPU's results. Then it measures copies,
# products, all-reduces by each path, and training steps, including PyTorch's if that is installed. Afterwards run this
# notebook again to see your card in its tables. `pytest --device cuda` runs the whole test suite on the card;
# `benchmarks/results/README.md` says what most of it found on an H200.
#
# ## To take along
#
# * Work is compute-bound or bandwidth-bound, depending on its intensity. In this GPT everything except the linear
#   layers is bandwidth-bound, unless attention keeps its scores on the chip.
# * Bandwidth-bound work gets faster if it moves fewer bytes: in fewer passes, or with fewer bits per number.
# * The share of the peak shows how far a step is from the card's limit, and its kinds of work show why.
# * Arrays on a card should stay there: the link to the host is far slower than the card's memory.
#
# **Try:** Double the width in `SHAPE`: what happens to the share of the peak? Set `card = preset("a100").device` above
# the roofline: does any kind of work change sides? Add `functional.gelu_backward(x, x)` to `work`: is it worth writing
# a kernel for it?
#
# **Read:** [`simdist/arrays/meter.py`](../simdist/arrays/meter.py) and
# [`simdist/cluster/device.py`](../simdist/cluster/device.py) (Williams, Waterman, Patterson 2009, *Roofline: an
# insightful visual performance model for multicore architectures*, CACM 52(4));
# [`simdist/arrays/kernels/norm.py`](../simdist/arrays/kernels/norm.py) and
# [`simdist/arrays/kernels/flash.py`](../simdist/arrays/kernels/flash.py) (Dao 2023, *FlashAttention-2*,
# arXiv 2307.08691); [`simdist/comm/device.py`](../simdist/comm/device.py), the paths between ranks;
# [`benchmarks/gpu.py`](../benchmarks/gpu.py).
