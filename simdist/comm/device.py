"""Device: where a rank's arrays are (host, GPU, or phantom), and how they reach other ranks.

    path          messages                                           collectives of ranks on one node
    cuda-aware    MPI reads and writes device memory                 by messages
    ipc           through pinned host memory, piece by piece         direct: each rank opens the others' memory
    staged        through pinned host memory, piece by piece         by messages
    process       none: virtual ranks, or one, share this process    direct

Messages use the host on `ipc`, too. If receivers copied them from device memory of the sender, each would need an
acknowledgement for which the sender waits: a protocol that would pay only in a pipeline.

Passing device memory to an MPI without CUDA support crashes. So MPI must declare support, and a child process, which
may crash, tries it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from simdist.arrays.kind import device_library
from simdist.comm.checks import cut
from simdist.errors import WorldUnavailable, require_known

if TYPE_CHECKING:
    from simdist.comm.communicator import Communicator

__all__ = ["DEVICES", "HOST", "PATHS", "Device", "Finding", "choose_path", "first_trouble", "use_device"]

DEVICES = ("cpu", "cuda", "phantom")
PATHS = ("auto", "cuda-aware", "ipc", "staged")


@dataclass(frozen=True)
class Device:
    """Where a rank's arrays are.

    Attributes:
        kind: of the arrays that `comm.empty` returns.
        path: how they reach other ranks; see above. Empty for host memory.
        words: a description of the device and the reason for the path, for reports.
        place: identifies the GPU on its node; the same text for ranks that share it.
        index: the GPU's number in this process.
        processors: how many of its processors multiply matrices in parallel.
    """

    kind: str = "numpy"
    path: str = ""
    words: str = ""
    place: str = ""
    index: int = 0
    processors: int = 8

    def enter(self) -> None:
        """Select the device for the calling thread, which may be new."""
        if self.kind == "cupy":
            device_library().select(self.index)

    def synchronize(self) -> None:
        """Return when all work that this rank has started on its arrays is done: a GPU works asynchronously."""
        if self.kind == "cupy":
            device_library().synchronize()

    @property
    def large(self) -> int:
        """Rows and columns of matrices whose product uses the whole device."""
        return 64 * self.processors

    def factor_dtype(self, kept: Any, worked: Any) -> Any:
        """The dtype of factors in a matrix product: a GPU multiplies short floats, a CPU widens them first."""
        return kept if self.kind == "cupy" else worked


HOST = Device()


@dataclass(frozen=True)
class Finding:
    """The result of testing a path.

    Attributes:
        works: whether it works on all ranks.
        why: why or why not, with what to install or set.
    """

    works: bool
    why: str


def use_device(comm: "Communicator", name: str, path: str = "auto") -> Device:
    """Set the device of a communicator, and of all that are made from it afterwards.

    All ranks must call it. The ranks of a node take its GPUs in turn; virtual ones share the first, since a process
    has one in use.

    Args:
        name: "cpu"; "cuda" for an NVIDIA GPU; or "phantom" for arrays without data, on virtual ranks.
        path: one of PATHS; "auto" takes the first that works.

    Raises:
        UnknownNameError: there is no such device or path.
        WorldUnavailable: on all ranks. A rank has no CuPy or no GPU, or the path does not work, with what to install;
            or the ranks are processes, which cannot send phantoms.
    """
    require_known("device", name, DEVICES)
    require_known("device path", path, PATHS)
    if name == "cpu":
        comm.device = HOST
        return HOST
    if name == "phantom":
        if "process" not in comm.device_paths():
            raise WorldUnavailable("device phantom: arrays without numbers cannot go over MPI; needs virtual ranks")
        comm.device = Device("phantom", words="phantoms: arrays of a shape, and no numbers")
        return comm.device
    index, place, called = _take_gpu(comm)
    finding = choose_path(path, comm.device_paths())
    words = f"{called}, path {finding[0]}: {finding[1]}"
    comm.device = Device("cupy", finding[0], words, place, index, device_library().num_processors())
    return comm.device


def _take_gpu(comm: "Communicator") -> tuple[int, str, str]:
    """Select this rank's GPU; returns its number, place and name. It fails on all ranks or on none."""
    neighbours = comm.nodes.neighbours(comm.rank)
    index, place, called, trouble = 0, "", "", ""
    try:
        library = device_library()
        count = library.num_devices()
        if not count:
            raise WorldUnavailable("device cuda: this process sees no GPU; it needs an NVIDIA GPU and its driver")
        index = 0 if "process" in comm.device_paths() else neighbours.index(comm.rank) % count
        library.select(index)
        place, called = library.place_of(index), f"{library.name()} ({library.versions()})"
    except WorldUnavailable as error:
        trouble = str(error)
    except RuntimeError as error:  # CUDA's: for example, another process uses the GPU exclusively
        trouble = f"device cuda: {error}"
    if found := first_trouble(comm, trouble):
        raise WorldUnavailable(found)
    return index, place, called


def first_trouble(comm: "Communicator", trouble: str) -> str:
    """The trouble of the first rank that has any, which it names; empty if none has. All ranks must call it."""
    notes = comm.exchange(cut(trouble))
    return next((f"{note} (on rank {rank})" for rank, note in enumerate(notes) if note), "")


def choose_path(wanted: str, paths: dict[str, Callable[[], Finding]]) -> tuple[str, str]:
    """The path to use, and why: the wanted one, or the first that works.

    If this world does not have the wanted path, as on virtual ranks, the first that works is used.

    Args:
        wanted: one of PATHS.
        paths: the paths of this world, the best first, each with its test.

    Raises:
        WorldUnavailable: the wanted path, or every path, does not work.
    """
    if wanted != "auto" and wanted in paths:
        found = paths[wanted]()
        if not found.works:
            raise WorldUnavailable(f"device path {wanted}: {found.why}")
        return wanted, f"asked for; {found.why}"
    refused: list[str] = []
    for name, test in paths.items():
        found = test()
        if found.works:
            return name, "; ".join([found.why, *refused])
        refused.append(f"not {name}: {found.why}")
    raise WorldUnavailable(f"no path for arrays on the device: {'; '.join(refused)}")
