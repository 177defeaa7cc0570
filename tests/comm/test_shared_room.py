"""A node with little shared memory, as a container has 64 MiB where nobody says otherwise: nobody is killed by it."""

import shutil
import subprocess

import pytest
from jobs import job, needs_mpi

SMALL = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs -o size=64m tmpfs /dev/shm && exec "$@"', "sh"]

PROGRAM = """
import warnings

import numpy as np

import simdist as sd
from simdist.collectives import all_reduce
from simdist.errors import SharedMemoryFull

MIB = 1 << 18  # items
comm = sd.world()
warnings.simplefilter("always")


def adds_up(x):
    x[...] = 1 + comm.rank
    all_reduce(x, comm)
    return bool((x == 3).all())


with warnings.catch_warnings(record=True) as told:
    kept = [comm.empty(4 * MIB, np.float32)]
    group = comm.split(0)
    group.empty(10 * MIB, np.float32)  # nobody writes to it, yet it is promised
    assert adds_up(kept[0]) and not told
    kept.append(comm.empty(10 * MIB, np.float32))
    assert adds_up(kept[1]) and len(told) == (comm.rank == 0), told
    group.free()
    kept.append(comm.empty(10 * MIB, np.float32))
    assert adds_up(kept[2]) and len(told) == (comm.rank == 0), told
    kept.append(comm.empty(40 * MIB, np.float32))
    assert adds_up(kept[3]) and len(told) == 2 * (comm.rank == 0), told
promised = comm.empty(6 * MIB, np.float32)
for items in (100 * MIB, 26 * MIB):  # more than there is; more than there is once what is promised is written to
    try:
        comm.shared(items, np.float32)
    except SharedMemoryFull as error:
        print(f"rank {comm.rank}: {error}", flush=True)
comm.shared(10 * MIB, np.float32)  # one for both ranks; for two there would be no room
if comm.rank == 0:
    print(told[0].message, flush=True)
"""


def can_be_small():
    """Whether this process may give its children shared memory of their own."""
    if shutil.which("unshare") is None:
        return False
    return subprocess.run([*SMALL, "true"], capture_output=True, check=False).returncode == 0


@needs_mpi
@pytest.mark.skipif(not can_be_small(), reason="needs to mount a file system")
def test_arrays_that_have_no_room_in_common_are_ranks_own_and_what_must_be_in_common_is_refused(tmp_path):
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    done = job(2, file, under=SMALL)
    assert done.code == 0, done.output
    for rank in range(2):
        for size in (105, 27):
            assert f"rank {rank}: the ranks of a node cannot share {size} MB (" in done.output
        assert "of 67; give /dev/shm more, in a container by --shm-size=2g" in done.output
    assert "MB with what they share already): /dev/shm has" in done.output
    assert "Each rank gets private memory instead" in done.output
