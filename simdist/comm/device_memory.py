"""Device memory that the ranks of a node open for each other, and the order of their work on it.

    own GPUs     rank r    record event r        meet    wait for the events of the others    read and write
                                                         (on the device: the host continues)
    shared GPU   rank r    wait for own work     meet                                         read and write
                           (on the host)

A wait for an event covers its latest recording. Each rank records its event before it comes to the meeting, so the
others wait at least for its work up to there.

A GPU runs the work of one process at a time, and switching takes some 100 µs. A wait for an event is work, too. So
ranks that share a GPU wait on the host: then one that has nothing to do there costs no switch.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from simdist.arrays.kind import address, device_library
from simdist.comm.checks import cut
from simdist.comm.communicator import Communicator
from simdist.errors import ArrayError

__all__ = ["DevicePeers", "DeviceWindow"]


class DeviceWindow:
    """Device memory in which each rank of a node has a part that all of them can access, like `Window` on the host.

    CUDA requires that all other ranks close a part before its owner frees it, and likewise the events of `DevicePeers`:
    so freeing either includes a barrier in between.

    Args:
        comm: the ranks, which are on one node; all must call this.
        name: the same on all of them, and unique among their windows.
        num_bytes: of this rank's part.

    Attributes:
        parts: every rank's part as bytes, by global rank.
        start, end: the addresses of this rank's part.
    """

    def __init__(self, comm: Communicator, name: str, num_bytes: int) -> None:
        library = device_library()
        self.name = name
        own, handle, trouble = None, b"", ""
        try:
            own, handle = library.exported(num_bytes)
        except library.failure as error:
            trouble = f"! {error}"
        told = [note.split() for note in comm.exchange(cut(trouble) or f"{handle.hex()} {num_bytes}")]
        for rank, (first, *words) in enumerate(told):
            if first == "!":
                raise ArrayError(f"rank {rank} cannot allocate device memory that others can open: {' '.join(words)}")
        self._opened = {
            rank: library.PeerMemory(bytes.fromhex(there), int(size))
            for rank, (there, size) in zip(comm.ranks, told, strict=True)
            if rank != comm.ranks[comm.rank]
        }
        self.parts = {rank: peer.bytes for rank, peer in self._opened.items()}
        self.parts[comm.ranks[comm.rank]] = own
        self.start = address(own) if num_bytes else 0
        self.end = self.start + num_bytes

    def free(self) -> None:
        """Close the parts of the other ranks; this rank's part exists as long as this object and arrays in it.

        Returns when this rank's device has finished its work.
        """
        library = device_library()
        with suppress(library.failure):  # at the end of a process CUDA may already be shut down
            library.synchronize()
        self.parts = {rank: part for rank, part in self.parts.items() if rank not in self._opened}
        for peer in self._opened.values():
            peer.close()
        self._opened.clear()


class DevicePeers:
    """The ranks of a node, with two rooms each on its device; those with their own GPUs wait for each other's events.

    Args:
        comm: the ranks; all must call this.
        window: holds the rooms.

    Attributes:
        led: the ranks whose slices this one reduces. Work of ranks that share a GPU does not run at the same time, so
            one of them reduces for all; a rank with its own GPU reduces its own slice.
        memory: "devices" if each rank has its own, otherwise "device".
    """

    def __init__(self, comm: Communicator, window: DeviceWindow) -> None:
        library = device_library()
        self.window = window
        places = comm.exchange(comm.device.place)
        self.led = led(places, comm.rank)
        self.memory = "devices" if len(set(places)) == len(places) else "device"
        self._event = None if self.memory == "device" else library.Event(shared=True)
        self._others: list[Any] = []
        if self._event is not None:
            self._event.record()
            handles = comm.exchange(self._event.handle.hex())
            self._others += [library.PeerEvent(bytes.fromhex(h)) for rank, h in enumerate(handles) if rank != comm.rank]

    def arrive(self) -> None:
        """Before a meeting: record the event that the others wait for, or wait for this rank's work."""
        if self._event is not None:
            self._event.record()
        else:
            device_library().synchronize()

    def depart(self) -> None:
        """After a meeting: make later work of this rank wait for the earlier work of the others."""
        for event in self._others:
            event.wait()

    def end(self) -> None:
        """Close the events of the others; the own event is freed with this object."""
        device_library().synchronize()
        for event in self._others:
            event.close()
        self._others.clear()


def led(places: Sequence[str], rank: int) -> list[int]:
    """The ranks whose slices a rank reduces: all on its GPU, if it is the first of them, otherwise none.

    Args:
        places: the GPU of each rank.
    """
    here = [other for other, place in enumerate(places) if place == places[rank]]
    return here if here[0] == rank else []
