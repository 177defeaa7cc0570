"""What tests of memory share: what a rank of a mesh keeps of a batch of phantoms, beside the formulas."""

import numpy as np
from harness import virtual

from simdist.arrays import Ledger, phantom, recorded
from simdist.comm import Mesh
from simdist.nn import Noise, gpt
from simdist.nn.memory import Cut, activation_bytes, peak_activation_bytes
from simdist.parallel.parts import MeshParts

__all__ = ["check_held"]

SEQUENCES = 3


def check_held(sizes, shape, dtype, **options):
    """On each rank what is held between forward and backward, at most, and at the end, is what the formulas say."""
    tp, sp = sizes.get("tp", 1), sizes.get("sp", 1)
    ring = sp > 1 and options.get("attention") != "ulysses"
    given = shape, SEQUENCES, np.dtype(dtype).itemsize, Cut(tp, options.get("sequence_parallel", False), sp, ring)
    p = int(np.prod(list(sizes.values())))
    for found in virtual(_measure, p, sizes, shape, dtype, options):
        assert found == (activation_bytes(*given), peak_activation_bytes(*given), 0)


def _measure(comm, sizes, shape, dtype, options):
    model, ledger = gpt(shape, MeshParts(Mesh(comm, **sizes), **options)), Ledger()
    model.parameters.bind(*(phantom(model.parameters.size, dtype) for _ in range(2)))
    windows = phantom((SEQUENCES, shape.context + 1), np.uint8)
    with recorded(ledger):
        _, context = model.forward(windows, Noise(0, 0, np.arange(SEQUENCES)))
        between = ledger.now.of("activations")
        model.backward(context, 1.0)
        del context, windows
    return between, ledger.peaks["activations"], ledger.now.of("activations")
