"""How many ranks fit, on machines that tell different limits."""

import os
import resource

import pytest

from simdist.errors import ArgumentError
from simdist.launch import room
from simdist.launch.room import BYTES_PER_RANK, available_bytes, check_room

FREE = {"/proc/meminfo": "MemTotal:  9000 kB\nMemFree:  10 kB\nMemAvailable:   2048 kB\nBuffers:  5 kB\n"}
LIMIT, USED = "/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"
PIDS = {"/proc/sys/kernel/pid_max": "32768\n"}


@pytest.fixture
def machine(monkeypatch):
    """machine(files): the kernel tells these."""
    return lambda files: monkeypatch.setattr(room, "_lines", lambda path: files.get(path, "").splitlines())


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ({}, None),
        (FREE, 2048 << 10),
        (FREE | {LIMIT: "3000000\n", USED: "1000000\n"}, 2_000_000),
        (FREE | {LIMIT: "9000000\n", USED: "1000000\n"}, 2048 << 10),
        (FREE | {LIMIT: "max\n", USED: "1000000\n"}, 2048 << 10),
        (FREE | {LIMIT: "3000000\n"}, 2048 << 10),
        ({LIMIT: "3000000\n", USED: "3000001\n"}, 0),
    ],
    ids=range(7),
)
def test_free_memory_is_the_kernels_and_the_containers(machine, files, found):
    machine(files)
    assert available_bytes() == found


@pytest.mark.parametrize(
    ("user", "soft", "files", "found"),
    [
        (0, 50, PIDS, 32768),
        (0, 50, PIDS | {"/sys/fs/cgroup/pids.max": "100\n"}, 100),
        (0, 50, PIDS | {"/sys/fs/cgroup/pids.max": "max\n"}, 32768),
        (1000, 50, PIDS | {"/sys/fs/cgroup/pids.max": "100\n"}, 50),
        (1000, resource.RLIM_INFINITY, PIDS, 32768),
        (0, 50, {}, None),
    ],
)
def test_processes_are_limited_by_machine_container_and_user(machine, monkeypatch, user, soft, files, found):
    machine(files)
    monkeypatch.setattr(os, "getuid", lambda: user)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, soft))
    assert room._most_processes() == found


@pytest.mark.parametrize("world", BYTES_PER_RANK)
def test_as_many_ranks_as_have_room_are_allowed(monkeypatch, world):
    monkeypatch.setattr(room, "_most_processes", lambda: None)
    for have, fits in ((3 * BYTES_PER_RANK[world], True), (3 * BYTES_PER_RANK[world] - 1, False), (None, True)):
        monkeypatch.setattr(room, "available_bytes", lambda have=have: have)
        if fits:
            check_room(3, world)
        else:
            with pytest.raises(ArgumentError, match=f"3 ranks of world '{world}' need about .* free, enough for 2$"):
                check_room(3, world)
