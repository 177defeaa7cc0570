"""Part: a parameter with some of its columns or rows on each rank."""

from simdist.arrays import partition
from simdist.comm import Communicator
from simdist.nn import Parameter, Place
from simdist.parallel.even import check_even

__all__ = ["cut"]

_AXES = ("rows", "columns")


def cut(name: str, shape: tuple[int, ...], axis: int, comm: Communicator, std: float = 0.0) -> Parameter:
    """This rank's part of a parameter that is cut along an axis.

        comm of 3, axis 1     | 0 0 1 1 2 2 |         axis 0     | 0 0 0 |
                              | 0 0 1 1 2 2 |                    | 1 1 1 |
                                                                 | 2 2 2 |

    Args:
        shape: of the whole.
        std: as of `Parameter`.

    Raises:
        ArgumentError: the axis cannot be divided evenly over the ranks.
    """
    check_even(f"{_AXES[axis - len(shape)]} of {name}", shape[axis], "tp", comm.size)
    own = partition(shape[axis], comm.size)[comm.rank]
    index = tuple(own if i == axis else slice(0, n) for i, n in enumerate(shape))
    part = tuple(own.stop - own.start if i == axis else n for i, n in enumerate(shape))
    return Parameter(name, part, std=std, place=Place(shape, index))
