import numpy as np
import pytest

from simdist.errors import ArrayError
from simdist.nn.parameters import Parameter, Parameters, Place
from simdist.training.checkpoint import Box, Piece, ShardedTensor, flat_shard

SHAPES = {"table": (5, 3), "scale": (), "cube": (2, 3, 4), "bias": (7,)}


@pytest.fixture
def parameters():
    return Parameters(Parameter(name, shape) for name, shape in SHAPES.items())


def test_a_flat_shard_is_views_of_what_it_covers(parameters):
    flat = np.arange(parameters.size, dtype=np.float64)
    for start in range(parameters.size + 1):
        for stop in range(start, parameters.size + 1):
            x = flat[start:stop]
            tensors = flat_shard(x, parameters, start)
            assert list(tensors) == list(SHAPES)
            assert sum(box.size for tensor in tensors.values() for box, _ in tensor.pieces) == len(x)
            for name, tensor in tensors.items():
                whole = flat[parameters.spans[name]].reshape(SHAPES[name])
                assert tensor.shape == SHAPES[name]
                for box, data in tensor.pieces:
                    np.testing.assert_array_equal(data, whole[box.within(Box.whole(tensor.shape))])
                    assert np.shares_memory(data, x)


def test_padding_belongs_to_no_parameter(parameters):
    n = parameters.size
    tensors = flat_shard(np.zeros(10), parameters, n - 4)
    assert [tensor.pieces and tensor.pieces[0].box.size for tensor in tensors.values()] == [(), (), (), 4]
    assert not any(tensor.pieces for tensor in flat_shard(np.zeros(10), parameters, n + 3).values())


def test_a_part_of_a_parameter_lies_in_its_place():
    places = {"w": Place((4, 6), (slice(None), slice(2, 4))), "b": Place((6,), (slice(2, 4),))}
    columns = Parameters([Parameter("w", (4, 2), place=places["w"]), Parameter("b", (2,), place=places["b"])])
    x = np.arange(10.0)
    tensors = flat_shard(x[1:9], columns, 1, prefix="m/")
    whole = np.full((4, 6), np.nan)
    for box, data in tensors["m/w"].pieces:
        whole[box.within(Box.whole((4, 6)))] = data
    expected = np.full((4, 6), np.nan)
    expected[:, 2:4] = x[:8].reshape(4, 2)
    expected[0, 2] = np.nan
    np.testing.assert_array_equal(whole, expected)
    assert [box.spans for box, _ in tensors["m/b"].pieces] == [((2, 3),)]
    with pytest.raises(ArrayError, match="its place"):
        flat_shard(x, Parameters([Parameter("w", (4, 2), place=Place((4, 6), (slice(0, 4), slice(0, 3))))]))


def test_pieces_must_fit():
    x = np.zeros((2, 3))
    assert ShardedTensor.part(x, (4, 3), (slice(2, 4),)).pieces[0].box == Box(((2, 4), (0, 3)))
    for box, data in [(Box(((3, 5), (0, 3))), x), (Box(((0, 2), (0, 2))), x), (Box(((0, 2), (0, 3))), x.astype("f4"))]:
        with pytest.raises(ArrayError, match="do not fit"):
            ShardedTensor((4, 3), np.dtype(np.float64), (Piece(box, data),))
