"""The collectives as programs call them."""

from typing import Any

import numpy as np

from simdist.arrays import Array, Reduction, consecutive, empty, kind_of, partition, phantom, reduction, slices
from simdist.arrays.kind import address
from simdist.collectives.buffers import check_communicator, describe, flat, root_of
from simdist.collectives.perform import execute, perform, plan_of, prepare, prepared
from simdist.comm import Communicator
from simdist.errors import ArrayError

__all__ = [
    "all_gather",
    "all_reduce",
    "all_to_all",
    "barrier",
    "broadcast",
    "gather",
    "reduce",
    "reduce_scatter",
    "scatter",
]

Op = str | Reduction


def all_reduce(x: Array, comm: Communicator, op: Op = "sum", algorithm: str = "auto", **options: Any) -> None:
    """Replace x, on every rank, by its reduction over all ranks.

    Args:
        x: C-contiguous, the same shape and dtype on every rank; overwritten.
        op: "sum", "min", "max", "prod", "lor" or "land". On bools a sum is an or, a product an and. Or a Reduction
            (simdist.arrays) of your own.
        algorithm: one of `algorithms("all_reduce")`, or "auto" for the one measured, or predicted, to be fastest.
        options: of the algorithm, such as order= for the ring.

    Every rank gets bit-identical results. Cost: `cost("all_reduce", algorithm, ranks=p, num_bytes=x.nbytes)`.

    Raises:
        UnknownNameError: no such algorithm or op.
        ArrayError: x cannot be used; or two virtual ranks give the same one to be written to.
        ArgumentError: comm is no communicator.
        CollectiveMismatch: on all ranks, if they do not all call this with the same arguments.
    """
    if not options and (plan := prepared(comm, x, algorithm, op)) is not None:
        execute(plan, comm, x, lambda run, _: run(x))
        return
    check_communicator(comm, x)
    items, fold = flat(x, comm), reduction(op)
    comm.own(items)
    signature = x.dtype, x.shape, ("op", fold.name)
    plan = plan_of("all_reduce", algorithm, options, comm, items, signature)
    execute(plan, comm, items, lambda run, shadow: run(items, shadow, fold))
    if items is x:
        prepare(plan, comm, x, algorithm, op, fold)


def reduce_scatter(x: Array, comm: Communicator, op: Op = "sum", algorithm: str = "auto", **options: Any) -> Array:
    """Reduce x over all ranks and leave each rank one chunk of the result.

    Args:
        x: C-contiguous, the same shape and dtype on every rank; all of it is working space.
        op, algorithm, options: as of `all_reduce`.

    Returns:
        chunk r of partition(x.size, p) on rank r: flat, a view into x.

    Raises:
        UnknownNameError, ArrayError, CollectiveMismatch: as of `all_reduce`.
    """
    check_communicator(comm, x)
    items, fold = flat(x, comm), reduction(op)
    comm.own(items)
    signature = x.dtype, x.shape, ("op", fold.name)
    perform("reduce_scatter", algorithm, options, comm, items, signature, lambda run, shadow: run(items, shadow, fold))
    return items[partition(len(items), comm.size)[comm.rank]]


def all_gather(
    shard: Array, comm: Communicator, algorithm: str = "auto", *, out: Array | None = None, **options: Any
) -> Array:
    """Join the shards of all ranks, in the order of ranks, on every rank.

    Args:
        shard: C-contiguous; its length may differ from rank to rank, its dtype may not.
        algorithm: one of `algorithms("all_gather")`, or "auto".
        out: where the result goes, C-contiguous, of the shard's dtype. Then shard r must have the length of chunk r
            of partition(out.size, p); a shard that is already that part of `out` is not copied. Without `out` the ranks
            first exchange the lengths of their shards (not recorded), and the result is a new array.

    Returns:
        the joined array, flat; `out` itself where it was given.

    Raises:
        UnknownNameError, ArrayError, CollectiveMismatch: as of `all_reduce`.
    """
    check_communicator(comm, shard)
    mine = flat(shard, comm, writable=False)
    if out is None:
        lengths = _lengths("all_gather", mine, comm)
        full, chunks = np.empty_like(mine, shape=(sum(lengths),)), consecutive(lengths)
    else:
        full = flat(out, comm)
        chunks = slices(len(full), comm.size)
        _require_fit(mine, full, chunks[comm.rank], comm)
    comm.own(full)
    there = full[chunks[comm.rank]]
    if out is None or not _same(mine, there):
        there[...] = mine
    signature = full.dtype, full.shape
    perform("all_gather", algorithm, options, comm, full, signature, lambda run, shadow: run(full, shadow, chunks))
    return full if out is None else out


def all_to_all(
    x: Array, comm: Communicator, algorithm: str = "auto", *, out: Array | None = None, **options: Any
) -> Array:
    """Send x[j] to rank j, for all j, and receive what the others have for this rank.

    Args:
        x: shape (p, …), C-contiguous, the same shape and dtype on every rank; not changed.
        algorithm: one of `algorithms("all_to_all")`, or "auto".
        out: where the result goes, C-contiguous, of x's shape and dtype, not overlapping x; a new array if not given.

    Returns:
        y of x's shape, with y[i] from rank i: the transpose of the matrix of ranks and rows.

    Raises:
        UnknownNameError, ArrayError, CollectiveMismatch: as of `all_reduce`; ArrayError also if x's first axis is not
            p long, or `out` does not have x's shape and dtype, or shares memory with x.
    """
    check_communicator(comm, x)
    items = flat(x, comm, writable=False)
    if x.ndim == 0 or x.shape[0] != comm.size:
        raise ArrayError(
            f"rank {comm.rank} gave an array of shape {x.shape}; all_to_all over {comm.size} ranks needs one row each"
        )
    y = np.empty_like(x) if out is None else out
    if flat(y, comm).dtype != x.dtype or y.shape != x.shape:
        raise ArrayError(f"rank {comm.rank} gave out of {describe(y)} for x of {describe(x)}; they must be alike")
    if out is not None and np.may_share_memory(x, y):
        raise ArrayError(f"rank {comm.rank} gave an out of {describe(y)} that shares memory with x")
    comm.own(y)
    rows = comm.size, x.size // comm.size
    x_rows, y_rows = x.reshape(rows), y.reshape(rows)
    signature = x.dtype, x.shape
    perform("all_to_all", algorithm, options, comm, items, signature, lambda run, shadow: run(x_rows, y_rows, shadow))
    return y


def broadcast(x: Array, comm: Communicator, root: int = 0, algorithm: str = "auto", **options: Any) -> None:
    """Replace x, on every rank, by root's x.

    Args:
        x: C-contiguous, the same shape and dtype on every rank; overwritten except on root.
        root: a rank of comm.
        algorithm: one of `algorithms("broadcast")`, or "auto".

    Raises:
        UnknownNameError, ArrayError, CollectiveMismatch: as of `all_reduce`.
        ArgumentError: root is not a rank of comm.
    """
    check_communicator(comm, x)
    root = root_of(comm, root)
    items = flat(x, comm, writable=comm.rank != root)
    comm.own(items)
    signature = x.dtype, x.shape, ("root", root)
    perform("broadcast", algorithm, options, comm, items, signature, lambda run, shadow: run(items, shadow, root))


def reduce(
    x: Array, comm: Communicator, root: int = 0, op: Op = "sum", algorithm: str = "auto", **options: Any
) -> None:
    """Replace root's x by the reduction over all ranks; on other ranks x is used as scratch space.

    Args:
        x: C-contiguous, the same shape and dtype on every rank; overwritten, on ranks other than root by
            partial results.
        root: a rank of comm.
        op, algorithm, options: as of `all_reduce`.

    Raises:
        UnknownNameError, ArrayError, CollectiveMismatch: as of `all_reduce`.
        ArgumentError: root is not a rank of comm.
    """
    check_communicator(comm, x)
    root = root_of(comm, root)
    items, fold = flat(x, comm), reduction(op)
    comm.own(items)
    signature = x.dtype, x.shape, ("op", fold.name), ("root", root)
    perform("reduce", algorithm, options, comm, items, signature, lambda run, shadow: run(items, shadow, fold, root))


def scatter(x: Array | None, comm: Communicator, root: int = 0, algorithm: str = "auto", **options: Any) -> Array:
    """Give each rank its chunk of root's x.

    Args:
        x: C-contiguous, on root; ignored elsewhere, where it may be None. Root first tells the others its length
            and dtype (not recorded).
        root: a rank of comm.
        algorithm: one of `algorithms("scatter")`, or "auto".

    Returns:
        chunk r of partition(x.size, p) on rank r: flat, a new array.

    Raises:
        UnknownNameError, ArrayError, CollectiveMismatch: as of `all_reduce`.
        ArgumentError: root is not a rank of comm.
    """
    check_communicator(comm, x)
    root = root_of(comm, root)
    items = flat(x, comm, writable=False) if comm.rank == root else np.empty(0, np.uint8)
    note = f"{kind_of(items)} {len(items)} {items.dtype.name}"
    kind, length, dtype = comm.exchange(note, f"scatter from root {root}")[root].split()
    if comm.rank != root:
        items = empty(kind, 0, dtype)
    chunks = list(partition(int(length), comm.size))
    whole = phantom(int(length), items.dtype)
    signature = whole.dtype, whole.shape, ("root", root)
    shard: Array = perform(
        "scatter", algorithm, options, comm, whole, signature, lambda run, shadow: run(items, shadow, chunks, root)
    )
    return shard


def gather(shard: Array, comm: Communicator, root: int = 0, algorithm: str = "auto", **options: Any) -> Array | None:
    """Join the shards of all ranks, in the order of ranks, on root.

    Args:
        shard: C-contiguous; its length may differ from rank to rank, its dtype may not; not changed. The ranks
            first exchange the lengths (not recorded).
        root: a rank of comm.
        algorithm: one of `algorithms("gather")`, or "auto".

    Returns:
        the joined array, flat, on root; None elsewhere.

    Raises:
        UnknownNameError, ArrayError, CollectiveMismatch: as of `all_reduce`.
        ArgumentError: root is not a rank of comm.
    """
    check_communicator(comm, shard)
    root = root_of(comm, root)
    mine = flat(shard, comm, writable=False)
    chunks = consecutive(_lengths("gather", mine, comm))
    length = chunks[-1].stop
    whole = phantom(length, mine.dtype)
    signature = whole.dtype, whole.shape, ("root", root)
    full: Array | None = perform(
        "gather", algorithm, options, comm, whole, signature, lambda run, shadow: run(mine, shadow, chunks, root)
    )
    return full


def barrier(comm: Communicator, algorithm: str = "auto") -> None:
    """Return when all ranks have called this.

    Raises:
        UnknownNameError: no such algorithm.
        CollectiveMismatch: on all ranks, if they do not all call this.
    """
    check_communicator(comm)
    perform("barrier", algorithm, {}, comm, phantom(0), (), lambda run, shadow: run(shadow))


def _lengths(operation: str, mine: Array, comm: Communicator) -> list[int]:
    """The length of each rank's array."""
    if comm.size == 1:
        return [len(mine)]
    return [int(note) for note in comm.exchange(str(len(mine)), f"{operation}, the lengths of its shards")]


_WORTH_A_LOOK = 1 << 16


def _same(x: Array, y: Array) -> bool:
    """Whether two arrays of one length are the same memory; False for short ones, which are cheaper to copy."""
    return x.nbytes >= _WORTH_A_LOOK and kind_of(x) == kind_of(y) == "numpy" and address(x) == address(y)


def _require_fit(shard: Array, out: Array, chunk: slice, comm: Communicator) -> None:
    length = chunk.stop - chunk.start
    if len(shard) != length:
        raise ArrayError(f"rank {comm.rank}'s shard has {len(shard)} items; its part of the output has {length}")
    if shard.dtype != out.dtype:
        raise ArrayError(f"rank {comm.rank}'s shard is of {shard.dtype} and its output of {out.dtype}; needs one dtype")
