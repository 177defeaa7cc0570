"""Offload: keeps parts of a rank's state outside its device."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from simdist.arrays import Array, Meter, metered, moved
from simdist.arrays.disk import on_disk
from simdist.comm import Communicator
from simdist.errors import ArgumentError, require_known

__all__ = ["Offload"]

_WHAT = {"optimizer": 1, "gradients": 2, "parameters": 3}  # with the first stage that shards it
_WHERE = ("host", "disk")


class Offload:
    """Optimizer state, gradients or weights of a rank's part, kept in the host's memory or on disk.

        device    | weights | gradients |    forward, backward
                     ^            |
                     | 2 bytes    v 2 bytes          a weight of this rank's part and step, in 16 bits
        host      | update | masters | m | v |

    With the optimizer's state the update moves to the host too. So the gradients (to the host) and the weights (back)
    cross the link, and the state does not. State on disk is read for the update and written after it.

    Every transfer is on the record, as a span "offload …" with its bytes. On a modelled cluster its time is that of the
    cluster's `Host`, and so is the time of the update. Results are the same bits. For NumPy's arrays device and host
    are one memory; a GPU's arrays are copied to and from pinned pages, and NumPy does the update. Files on disk are
    memory-mapped; they have no name, so that none outlives its array. `ZeRO` raises OSError where the folder is missing
    or the disk full.

    Args:
        what: any of "optimizer", "gradients", "parameters"; gradients from stage 2 on, and parameters in stage 3.
        where: "host" or "disk".
        folder: for the files on disk; by default that for temporary files.

    Cost per rank and step, m weights of w bytes in its part: with the optimizer offloaded, w m bytes of gradients to
    the host and w m of weights back; with parameters, w m in each forward and each backward instead. Offloaded
    gradients go to the host with each micro-batch; in hybrid sharding their sum comes back with the last one, to be
    summed over copies.

    Raises:
        UnknownNameError: `what` or `where` has another value.

    Source: Ren et al. 2021, ZeRO-Offload, arXiv 2101.06840; Rajbhandari et al. 2021, ZeRO-Infinity,
    arXiv 2104.07857 (disk, and weights).
    """

    def __init__(
        self, what: Iterable[str] = ("optimizer",), where: str = "host", folder: str | Path | None = None
    ) -> None:
        self.what = frozenset(what)
        self.where = where
        self.folder = None if folder is None else Path(folder)
        for name in sorted(self.what):
            require_known("thing to offload", name, _WHAT)
        require_known("place to offload to", where, _WHERE)

    def check(self, zero_stage: int) -> None:
        """Raise ArgumentError if something to offload is not sharded in this stage."""
        for name in sorted(self.what):
            if zero_stage < _WHAT[name]:
                raise ArgumentError(
                    f"offload of {name} in stage {zero_stage}; every rank has them whole before stage {_WHAT[name]}"
                )

    def place(self, what: str) -> str:
        """Where something is kept: "device", "host" or "disk"."""
        return self.where if what in self.what else "device"

    @property
    def updating(self) -> str:
        """Where the update runs."""
        return "host" if "optimizer" in self.what else "device"

    def keep(self, what: str, x: Array) -> Array:
        """A copy of x in its place; x itself if that is the device."""
        if what not in self.what:
            return x
        if self.where == "disk":
            return on_disk(x, self.folder)
        host = moved(x, "numpy", locked=True)
        return host if host is not x else x.copy()

    def move(self, what: str, x: Array, comm: Communicator, start: str, end: str) -> Array:
        """x, moved from one place to another; recorded, and timed on a virtual clock."""
        if start == end or not x.nbytes:
            return x
        with self._way(what, x.nbytes, comm, start, end):
            return moved(x, comm.device.kind if end == "device" else "numpy", locked=True)

    def note(self, what: str, num_bytes: int, comm: Communicator, start: str, end: str) -> None:
        """Record and time a transfer like `move`, of data that the code that uses it moves itself."""
        if start != end and num_bytes:
            with self._way(what, num_bytes, comm, start, end):
                pass

    @contextmanager
    def _way(self, what: str, num_bytes: int, comm: Communicator, start: str, end: str) -> Iterator[None]:
        with comm.span(f"offload {what} {start} to {end}", num_bytes):
            comm.compute(comm.cluster.host.seconds(num_bytes, start, end), name=f"wait for {end}")
            yield

    @contextmanager
    def update(self, comm: Communicator) -> Iterator[None]:
        """On a virtual clock, let this block take as long as it would where the update runs."""
        if self.updating == "device":
            yield
            return
        meter, cluster = Meter(), comm.cluster
        with metered(meter):
            yield
        # The virtual clock has already counted the device's time for it.
        rest_s = meter.bytes / cluster.host.memory_bytes_per_s - cluster.device.seconds(meter.flops, meter.bytes)
        comm.compute(max(0.0, rest_s), name="update on the host")
