"""What the tests of checkpoints share: a small model's state, split over ranks as ZeRO splits it."""

import numpy as np

from simdist.arrays import partition
from simdist.errors import SimdistError
from simdist.nn.parameters import Parameter, Parameters
from simdist.training.checkpoint import flat_shard, load, save

__all__ = ["EXTRA", "PARAMETERS", "attempt", "expected", "own_weights", "restored", "shard", "shared", "state", "store"]

PARAMETERS = Parameters(
    Parameter(name, shape)
    for name, shape in {"table": (7, 3), "norm.scale": (), "w": (4, 5), "cube": (2, 3, 4), "b": (5,)}.items()
)

EXTRA = {"config": {"lr": 0.1}, "text": "naïve", "counter": 2**70, "list": [1, None, True]}

_KINDS = {"": np.float32, "adam.m/": np.float64, "adam.v/": "bfloat16"}


def expected(kind="", step=10):
    """The whole flat vector of this kind at this step."""
    x = np.random.default_rng([step, len(kind)]).standard_normal(PARAMETERS.size).astype(_KINDS[kind])
    x[:3] = np.nan, -0.0, np.inf
    return x


def shard(comm, stage):
    """Which part of a vector a rank has: all of it at stage 0."""
    return partition(PARAMETERS.size, comm.size)[comm.rank] if stage else slice(0, PARAMETERS.size)


def state(comm, stage, fill):
    """The tensors of this rank, and its vectors by kind, each filled by fill(kind); weights are whole on all."""
    tensors, vectors = {}, {}
    for kind in _KINDS:
        part = shard(comm, stage if kind else 0)
        vectors[kind] = fill(kind)[part].copy()
        tensors |= flat_shard(vectors[kind], PARAMETERS, part.start, kind)
    return tensors, vectors


def own_weights(method):
    """The weights that this rank keeps, with nan for those that others do."""
    weights = np.full(method.model.parameters.size, np.nan)
    for start, data in method.vectors()[""]:
        weights[start : start + len(data)] = data
    return weights


def shared(comm, path):
    """Rank 0's path, on all ranks."""
    return comm.exchange(str(path))[0]


def store(comm, path, stage=1, step=10, **options):
    """Save."""
    save(shared(comm, path), comm, step, state(comm, stage, lambda kind: expected(kind, step))[0], EXTRA, **options)


def restored(comm, path, stage=1, **options):
    """Load, and compare: the step, where every bit of every vector is as it was at that step."""
    tensors, vectors = state(comm, stage, lambda kind: np.full(PARAMETERS.size, 7, _KINDS[kind]))
    step, extra = load(shared(comm, path), comm, tensors, **options)
    for kind, found in vectors.items():
        want = expected(kind, step)[shard(comm, stage if kind else 0)]
        np.testing.assert_array_equal(found.view(np.uint8), want.view(np.uint8))
    assert extra == EXTRA
    return step


def attempt(comm, function, *args, **options):
    """What became of it on this rank: (name of the error, its words), or what it returned."""
    try:
        return function(comm, *args, **options)
    except SimdistError as error:
        return type(error).__name__, str(error)
