"""Arrays on a device obey the same functions; those that CuPy has not, or is slow at, are done by kernels."""

import itertools

import ml_dtypes
import numpy as np
import pytest
from harness import virtual, xp

from simdist.arrays import empty, kind_of, metered, moved, on_host
from simdist.arrays.fused import fused, kernel
from simdist.arrays.kind import address
from simdist.arrays.matmul import matmul, vecdot
from simdist.arrays.meter import Meter
from simdist.arrays.take import take
from simdist.errors import ArrayError

BF16 = np.dtype(ml_dtypes.bfloat16)


def close(x, y, tolerance):
    """Whether a device array holds about what a NumPy array of the same shape and dtype does."""
    y = on_host(y)
    same = x.shape == y.shape and x.dtype == y.dtype
    return same and (not x.size or np.abs(x.astype(np.float64) - y.astype(np.float64)).max() <= tolerance)


def test_arrays_go_to_the_device_and_back(device):
    for dtype in (np.float32, np.int64, np.uint8, np.bool_, BF16):
        x = np.arange(6).reshape(2, 3).astype(dtype)
        y = moved(x, "cupy")
        assert kind_of(y) == "cupy" and y.dtype == dtype
        assert moved(y, y) is y and on_host(x) is x
        assert (on_host(y) == x).all()
        assert moved(x.T, y).tolist() == x.T.tolist() and moved(x.T, y).flags.c_contiguous
        assert moved(np.array(x[1, 2]), y).shape == ()


def test_an_array_is_made_where_it_is_asked_for(device):
    x = empty("cupy", (2, 3), np.float16)
    assert (kind_of(x), x.shape, x.dtype) == ("cupy", (2, 3), np.float16)
    assert address(x[1]) - address(x) == 6
    phantom = empty("phantom", 3, np.float32)
    assert moved(phantom, x) is phantom


def test_with_a_device_programs_of_tests_have_their_arrays_there(device, monkeypatch):
    def program(comm):
        kinds = [kind_of(x) for x in (xp.arange(3), xp.asarray(np.ones(2)), comm.empty(2, np.float32))]
        return kinds, xp.full(2, comm.rank), {"sum": xp.ones(3).sum()}, xp.float32 is np.float32

    monkeypatch.setattr(xp, "device", "cuda")
    for rank, (kinds, x, more, same) in enumerate(virtual(program, 2)):
        assert kinds == ["cupy"] * 3 and type(x) is np.ndarray and x.tolist() == [rank] * 2
        assert float(more["sum"]) == 3 and same
    assert kind_of(xp.arange(3)) == "numpy"


def test_the_device_takes_no_host_array_unasked(device):
    x, y = moved(np.ones(3), "cupy"), np.ones(3)
    with pytest.raises(TypeError):
        np.add(x, y)
    with pytest.raises(TypeError):
        np.asarray(x)
    with pytest.raises(ValueError, match="fill"):
        x[...] = y
    x[...] = moved(y, x)


def test_a_function_is_done_by_its_kernel_only_on_the_device(device):
    @fused("activation")
    def gelu(x):
        return "by NumPy"

    assert gelu(np.ones(3)) == "by NumPy"
    assert kind_of(gelu(moved(np.ones(3, np.float32), "cupy"))[0]) == "cupy"
    assert kernel("norm", "layer_norm", np.ones(3)) is None


def views(x):
    """x as it is, transposed in memory, parts of something larger, and backward."""
    yield x
    yield x.swapaxes(-1, -2).copy().swapaxes(-1, -2)
    for room, part in (3, slice(1, -2)), (x.shape[-1], slice(None, None, 2)):
        larger = np.zeros_like(x, shape=(*x.shape[:-1], x.shape[-1] + room))
        larger[..., part] = x
        yield larger[..., part]
    yield x[..., ::-1, :].copy()[..., ::-1, :]
    if x.ndim > 2:
        more = np.zeros_like(x, shape=(*x.shape[:-3], x.shape[-3] + 1, *x.shape[-2:]))
        more[..., 1:, :, :] = x
        yield more[..., 1:, :, :]


@pytest.mark.parametrize("batch", [(), (3,), (2, 3)])
@pytest.mark.parametrize("dtype", [np.float64, np.float16, BF16])
def test_products_of_matrices_wherever_they_lie(device, batch, dtype):
    noise = np.random.default_rng(0)
    for m, k, n in ((4, 5, 2), (4, 1, 2), (1, 5, 1)):
        x, w = (noise.standard_normal((*batch, *shape)).astype(dtype) for shape in ((m, k), (k, n)))
        want = matmul(x, w)
        for a, b in itertools.product(views(moved(x, "cupy")), views(moved(w, "cupy"))):
            assert close(want, matmul(a, b), 1e-14 if dtype is np.float64 else 1e-2)


def test_matrices_are_multiplied_where_they_lie_if_rows_or_columns_are_whole(device):
    from simdist.arrays.kernels.matmul import Layout, _layout

    x, batch = np.zeros((2, 3, 8, 6)), (2, 3)
    found = {
        "whole": (x, Layout(False, 6, 48)),
        "across": (x.swapaxes(2, 3), Layout(True, 6, 48)),
        "columns": (x[..., 1:4], Layout(False, 6, 48)),
        "rows, across": (x[..., 1:3, :].swapaxes(2, 3), Layout(True, 6, 48)),
        "one of each": (x[..., :1, ::2], Layout(True, 2, 48)),
        "one column": (x[..., 2:3], Layout(False, 6, 48)),
        "one column of every fourth": (x[..., 2::4], Layout(False, 6, 48)),
        "every second column": (x[..., ::2], None),
        "backward": (x[..., ::-1], None),
        "rows backward": (x[..., ::-1, :], None),
        "overlapping": (np.lib.stride_tricks.as_strided(x, (2, 3, 4, 3), (1152, 384, 8, 8)), None),
        "part of a batch": (np.zeros((2, 4, 8, 6))[:, 1:], None),
        "one matrix": (x[0, 0], Layout(False, 6, 0)),
        "one batch": (x[0], None),
        "one for all": (np.broadcast_to(x[0, 0], x.shape), Layout(False, 6, 0)),
        "one for each 3": (np.broadcast_to(x[:, :1], x.shape), None),
        "3 for each 2": (np.broadcast_to(x[:1], x.shape), None),
    }
    for name, (view, want) in found.items():
        assert (name, _layout(view.shape, view.strides, 8, batch)) == (name, want)
    for view, want in ((x[1:], Layout(False, 6, 48)), (x[:, 1:2], Layout(False, 6, 144))):
        assert _layout(view.shape, view.strides, 8, view.shape[:2]) == want
    for shape in ((8, 1), (1, 6), (1, 1)):
        assert _layout(shape, np.zeros(shape).strides, 8, ()) == Layout(False, shape[1], 0)
    assert _layout((1, 6), (8, 64), 8, ()) == Layout(True, 8, 0)  # a row of what lies across


def test_products_are_added_to_what_is_there(device):
    noise = np.random.default_rng(1)
    x, w, row = noise.standard_normal((4, 5)), noise.standard_normal((5, 2)), noise.standard_normal(2)
    a, b = moved(x, "cupy"), moved(w, "cupy")
    assert close(x @ w + row, matmul(a, b, plus=moved(row, a)), 1e-14)
    for out in list(views(moved(np.ones((4, 2)), a))):
        matmul(a, b, out=out, plus=out)
        assert close(1 + x @ w, out, 1e-14)
        matmul(a, b, out=out)
        assert close(x @ w, out, 1e-14)
        matmul(a, b, out=out, plus=moved(row, a), scale=0.5)
        assert close(0.5 * (x @ w) + row, out, 1e-14)
    for shape in ((0, 5), (3, 0, 5)):
        none = moved(np.ones(shape), a)
        assert matmul(none, b).shape == (*shape[:-1], 2) == matmul(none, b, plus=moved(row, a)).shape
    nothing = moved(np.ones((4, 2)), a)
    matmul(a[:, :0], b[:0], out=nothing, plus=nothing)
    assert close(np.ones((4, 2)), nothing, 0)
    matmul(a[:, :0], b[:0], out=nothing)
    assert not on_host(nothing).any()
    assert close(np.zeros((4, 2)) + row, matmul(a[:, :0], b[:0], plus=moved(row, a)), 0)


@pytest.mark.parametrize("dtypes", list(itertools.product((np.float64, np.float32, np.float16, BF16), repeat=3)))
def test_products_of_one_dtype_with_another(device, dtypes):
    shapes = (4, 5), (5, 2), (4, 2)
    x, w, out = (np.arange(m * n).reshape(m, n).astype(t) for (m, n), t in zip(shapes, dtypes, strict=True))
    a, b, c = (moved(each, "cupy") for each in (x, w, out))
    assert close(matmul(x, w), matmul(a, b), 0)
    assert close(matmul(x, w, out), matmul(a, b, c), 0)
    assert close(matmul(x, w, out, out), matmul(a, b, c, c), 0)


@pytest.mark.parametrize(
    ("x", "w", "out"),
    [
        *(((4, 5), (4, 2), (4, 2)), ((4, 5), (5, 2), (4, 3)), ((4, 5), (5, 2), (3, 2))),
        *(((3, 4, 5), (1, 5, 2), (3, 4, 2)), ((5,), (5, 2), (2,)), ((4, 5), (5,), (4,))),
    ],
)
def test_shapes_of_products_must_fit(device, x, w, out):
    with pytest.raises(ArrayError, match="times"):
        matmul(*(empty("cupy", shape, np.float32) for shape in (x, w, out)))


@pytest.mark.parametrize("allowed", [False, True])
def test_only_products_of_float32_are_rounded_to_tf32_and_only_where_that_is_allowed(device, monkeypatch, allowed):
    computes = {}  # by cublas_api.h: 68 and 70 in float32 and float64, 77 in TF32
    monkeypatch.setattr(device, "gemm", lambda plan, x, w, y, factors, how: computes.update({x.dtype.name: how}))
    monkeypatch.setenv("SIMDIST_TF32", "1" if allowed else "0")
    for dtype in (np.float64, np.float32, np.float16, BF16):
        x = moved(np.ones((2, 2), dtype), "cupy")
        matmul(x, x)
    assert computes == {"float64": 70, "float32": 77 if allowed else 68, "float16": 68, "bfloat16": 68}


def test_products_of_what_is_no_float_are_refused(device):
    x = moved(np.ones((2, 2), np.int64), "cupy")
    with pytest.raises(ArrayError, match="int64"):
        matmul(x, x)


def test_products_of_rows(device):
    x = np.arange(12.0).reshape(2, 2, 3)
    assert close(vecdot(x, x + 1), vecdot(moved(x, "cupy"), moved(x + 1, "cupy")), 0)


def test_entries_of_a_table(device):
    table, indices = np.arange(10, 20), np.array([[3, 0], [9, 9]], np.uint8)
    assert take(table, indices).tolist() == take(table, moved(indices, "cupy")).tolist() == table[indices].tolist()


def test_memory_for_other_processes_is_an_allocation_of_its_own(device):
    x, handle = device.exported(10)
    assert len(handle) == 64 and x.shape == (10,)
    x[...] = 7
    with pytest.raises(device.failure):  # in the process that owns it
        device.PeerMemory(handle, 10)


def test_copies_beside_the_work_on_arrays(device):
    x, host, stream = moved(np.arange(9.0), "cupy"), device.pinned(72), device.Stream()
    stream.after_arrays()
    device.copy_out(x, host, stream.raw)
    y = np.empty_like(x)
    device.copy_in(y, host, stream.raw)
    stream.raw.synchronize()
    assert y.tolist() == list(range(9))


def test_events_tell_times(device):
    start, end = device.Event(timing=True), device.Event(timing=True)
    start.record()
    end.record()
    end.synchronize()
    assert device.milliseconds(start, end) >= 0


def test_the_meter_hears_of_kernels_as_of_numpy(device):
    from simdist.nn import functional as f

    noise = np.random.default_rng(2)
    x, g = noise.standard_normal((4, 8)).astype(np.float32), np.ones(8, np.float32)

    def counts(kind):
        a, gain = moved(x, kind), moved(g, kind)
        with metered(meter := Meter()):
            y, z, r = f.layer_norm(a, gain, gain)
            f.layer_norm_backward_weight(z, a, gain.copy(), gain.copy())
            f.gelu_backward(f.gelu(f.layer_norm_backward_input(z, r, gain, y))[1], a)
            y, z, r = f.rms_norm(a, gain)
            f.rms_norm_backward_weight(z, a, gain.copy())
            f.swiglu_backward(f.swiglu(f.rms_norm_backward_input(z, r, gain, y))[1], a[:, :4].copy())
            f.rotary(a.reshape(2, 2, 8)[..., :6].copy(), 1, np.arange(2))
            _, p = f.cross_entropy(a, moved(np.array([1, 2, 3, 0]), kind))
            f.cross_entropy_backward(p, moved(np.array([1, 2, 3, 0]), kind), 1.0)
        return meter.flops, meter.bytes

    assert counts("numpy") == counts("cupy")
