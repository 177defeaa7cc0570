"""Part: a parameter with some of its columns or rows on each rank."""

from simdist.arrays import partition
from simdist.comm import Communicator
from simdist.nn import Parameter, Place
from simdist.parallel.even import check_even

__all__ = ["cut"]

_AXES = ("rows", "columns")


def cut(
    name: str, shape: tuple[int, ...], axis: int, comm: Communicator, std: float = 0.0, own: slice | None = None
) -> Parameter:
    """This rank's part of a parameter that is cut along an axis.

        comm of 3, axis 1     | 0 0 1 1 2 2 |         axis 0     | 0 0 0 |
                              | 0 0 1 1 2 2 |                    | 1 1 1 |
                                                                 | 2 2 2 |

    Args:
        shape: of the whole.
        std: as of `Parameter`.
        own: of the first axis only these, such as this rank's experts; all if not given.

    Raises:
        ArgumentError: the axis cannot be divided evenly over the ranks.
    """
    check_even(f"{_AXES[axis - len(shape)]} of {name}", shape[axis], "tp", comm.size)
    index = [slice(0, n) for n in shape]
    if own is not None:
        index[0] = own
    index[axis] = partition(shape[axis], comm.size)[comm.rank]
    return Parameter(name, tuple(s.stop - s.start for s in index), std=std, place=Place(shape, tuple(index)))
