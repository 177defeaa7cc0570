"""Buckets: gradients reduced a part at a time, while the backward pass still computes the others.

    flat gradient     |---- first layers ----|---- … ----|---- last layers ----|
    complete                                                       <-- backward
    buckets           |----- 2 -----|------- 1 -------|---------- 0 -----------|

Backward completes gradients from the end of the flat vector to its beginning. As soon as the next
`bucket_bytes` are complete they go to a second stream, where they are reduced:

    main              | backward of last layers | … of middle layers | … of first layers | wait | update
    communication                               | reduce bucket 0    | bucket 1 | bucket 2 |

Source: Li et al. 2020, PyTorch Distributed, arXiv 2006.15704, sections 3.2.3 and 4.2.
"""

from simdist.arrays import Array
from simdist.collectives import all_reduce
from simdist.comm import Communicator, Work
from simdist.errors import require_least
from simdist.nn import Observer, Parameter, Parameters

__all__ = ["BUCKET_BYTES", "Buckets"]

BUCKET_BYTES = 1 << 20
"""The default size of a bucket."""


class Buckets(Observer):
    """Reduces a model's gradients during backward: give it to `model.backward` as observer, then `finish`.

        buckets = Buckets(model.parameters, comm)
        total, context = model.forward(windows)
        model.backward(context, scale, buckets)
        buckets.finish()                            # now the gradients are the sums over all ranks

    To accumulate gradients over several micro-batches pass it to the last backward only: the reduction then includes
    what earlier ones added. A parameter that a backward does not reach counts as complete at `finish`.

    Args:
        parameters: bound to flat vectors, in the order of forward.
        comm: the ranks that share the batch; all of them must create the buckets. Each gets a second stream.
        bucket_bytes: the least size of a bucket; the last one of a pass may be smaller.
        algorithm: of the all-reduce.

    Raises:
        ArgumentError: bucket_bytes is less than 1.

    Cost per rank and pass: an all-reduce per bucket, so the bytes of one all-reduce of the whole gradient, and its
    latency once per bucket.
    """

    def __init__(
        self, parameters: Parameters, comm: Communicator, bucket_bytes: int = BUCKET_BYTES, algorithm: str = "auto"
    ) -> None:
        require_least("bucket_bytes", bucket_bytes, 1)
        self._parameters = parameters
        self._bucket_bytes = bucket_bytes
        self._algorithm = algorithm
        self._side = comm.stream("communication")
        self._works: list[Work] = []
        self._begin()

    def _begin(self) -> None:
        """Nothing is complete."""
        self._incomplete = [p.name for p in self._parameters]  # up to the last incomplete one, in the vector's order
        self._complete_early: set[str] = set()  # complete, but a parameter after them in the vector is not
        self._bucket_end = self._parameters.size  # from here on the vector is reduced, or being reduced

    def gradients_complete(self, parameters: tuple[Parameter, ...]) -> None:
        """Reduce the gradients after the last incomplete one, up to those under way, if they fill a bucket."""
        self._complete_early.update(p.name for p in parameters)
        while self._incomplete and self._incomplete[-1] in self._complete_early:
            self._complete_early.remove(self._incomplete.pop())
        start = self._parameters.spans[self._incomplete[-1]].stop if self._incomplete else 0
        if (self._bucket_end - start) * self._parameters.gradient.itemsize >= self._bucket_bytes:
            self._start_reducing(start)

    def finish(self) -> None:
        """Reduce the rest, wait for every bucket, and get ready for the next pass."""
        if self._bucket_end > 0:
            self._start_reducing(0)
        self.wait()

    def wait(self) -> None:
        """Wait for the buckets under way, and get ready for the next pass, also where this one has failed."""
        for work in self._works:
            work.wait()
        self._works.clear()
        self._begin()

    def _start_reducing(self, start: int) -> None:
        bucket: Array = self._parameters.gradient[start : self._bucket_end]
        self._works.append(self._side.start(all_reduce, bucket, self._side.comm, algorithm=self._algorithm))
        self._bucket_end = start
