"""A crash at each of the things that are done to the disk leaves the old checkpoints or the new one, never half."""

import errno
import os
import random
import subprocess
import sys
import threading
import time
from pathlib import Path
from shutil import copytree

import numpy as np
import pytest
from checkpointing import attempt, restored, shared, store
from faulty_disk import Crash, CrashingDisk, FullDisk

import simdist as sd
from simdist.comm.solo import SoloCommunicator
from simdist.errors import CheckpointError
from simdist.training.checkpoint import ShardedTensor, latest, load, read_manifest, save, steps

RANKS = 2


def names(root):
    return sorted(path.name for path in Path(root).iterdir())


# The checkpoints before, the step that is saved, and how many are kept; then which may be there after a crash.
SCENES = {
    "first": ([], 20, None, [[], [20]]),
    "next": ([10], 20, None, [[10], [10, 20]]),
    "the only one": ([10], 20, 1, [[10], [10, 20], [20]]),
    "one of three": ([10, 20, 30], 40, 2, [[10, 20, 30], [10, 20, 30, 40], [20, 30, 40], [30, 40]]),
    "again": ([20], 20, None, [[20]]),
    "again, and older ones go": ([10, 20], 20, 1, [[10, 20], [20]]),
}


def crash(root, step, keep, at):
    """Save until the crash; whether it came, and the disk."""
    disk = CrashingDisk(at)
    try:
        sd.run(lambda comm: store(comm, root, 1, step, keep=keep, disk=disk), RANKS)
    except Crash:
        return True, disk
    return False, disk


def prepare(root, before):
    """The checkpoints before; those of the step that is saved again by another number of ranks."""
    for step in before:
        sd.run(store, 3, args=(root, 1, step))


@pytest.mark.slow(but=2)
@pytest.mark.parametrize("power", [False, True], ids=["killed", "power lost"])
@pytest.mark.parametrize("scene", SCENES)
def test_old_or_new(tmp_path, scene, power):
    before, step, keep, allowed = SCENES[scene]
    prepare(tmp_path / "template", before)
    seen, at, crashed = set(), 0, True
    while crashed:
        root = tmp_path / f"{at}"
        if before:
            copytree(tmp_path / "template", root)
        crashed, disk = crash(root, step, keep, at)
        if power:
            disk.lose_power()
        found = steps(root)
        assert found in (allowed if crashed else allowed[-1:])
        assert latest(root) == max(found, default=None)
        for number in found:  # whole, to the last bit
            assert restored(SoloCommunicator(), root, step=number) == number
        seen.add(tuple(found))
        sd.run(store, RANKS, args=(root, 1, 50))  # and the next run goes on from there
        assert steps(root) == [*found, 50]
        assert names(root) == sorted(f"step-{number}" for number in [*found, 50])
        at += 1
    assert at > 12
    assert seen == set(map(tuple, allowed))


def test_a_crash_in_writing_one_again_leaves_it_as_it_was_or_as_it_is(tmp_path):
    seen, at, crashed = [], 0, True
    while crashed:
        root, disk = tmp_path / str(at), CrashingDisk(at)
        save(root, SoloCommunicator(), 5, {}, "old")
        try:
            save(root, SoloCommunicator(), 5, {}, "new", disk=disk)
            crashed = False
        except Crash:
            disk.lose_power()
        seen.append(read_manifest(root).extra)
        at += 1
    assert seen == ["old"] * seen.count("old") + ["new"] * seen.count("new")
    assert seen.count("old") > 5 and seen.count("new") > 2


SAVING = """
import sys
from itertools import count
import numpy as np
from simdist.comm.solo import SoloCommunicator
from simdist.training.checkpoint import ShardedTensor, save

for step in count():
    tensors = {str(i): ShardedTensor.whole(np.full(5000, step)) for i in range(20)}
    save(sys.argv[1], SoloCommunicator(), step, tensors, keep=2)
    print(step, flush=True)
"""


def test_killed_at_any_moment(tmp_path):
    delays = random.Random(0)
    for i in range(3):
        root = tmp_path / str(i)
        with subprocess.Popen([sys.executable, "-c", SAVING, root], stdout=subprocess.PIPE, text=True) as process:
            alarm = threading.Timer(60, process.kill)
            alarm.start()
            last = [int(process.stdout.readline()) for _ in range(3)][-1]
            time.sleep(delays.uniform(0, 0.02))
            process.kill()
            alarm.cancel()
            last = max([last, *map(int, process.stdout.read().split())])
        for step in steps(root):
            tensors = {str(i): np.empty(5000, int) for i in range(20)}
            load(root, SoloCommunicator(), {name: ShardedTensor.whole(x) for name, x in tensors.items()}, step)
            assert all((x == step).all() for x in tensors.values())
        assert latest(root) in (last, last + 1)


# -- a disk that refuses ----------------------------------------------------------------------------


def full(comm, root, rank, at, code, step=20):
    """Save where this rank's disk refuses one thing."""
    return attempt(comm, store, root, 1, step, keep=2, disk=FullDisk(at if comm.rank == rank else None, code))


@pytest.mark.slow(but=3)
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EACCES])
@pytest.mark.parametrize("rank", range(3))
def test_a_disk_that_refuses_one_rank_refuses_all(spmd, tmp_path, rank, code):
    def refuse(comm, at):
        root = shared(comm, tmp_path)
        outcome = full(comm, root, rank, at, code)
        comm.barrier()
        there = names(root)
        comm.barrier()
        return outcome, there

    spmd(lambda comm: store(comm, tmp_path), 3)
    refusals = 0
    for at in range(40):
        found = spmd(refuse, 3, at)
        outcomes = {outcome for outcome, _ in found}
        assert len(outcomes) == 1
        if outcomes == {None}:
            break
        kind, words = outcomes.pop()
        assert kind == "CheckpointError"
        assert f"rank {rank}: [Errno {code}] {os.strerror(code)}" in words
        assert words.startswith("cannot write the checkpoint of step 20 in ") or "step-20" in found[0][1]
        assert all(there in (["step-10"], ["step-10", "step-20"]) for _, there in found)
        refusals += 1
    assert refusals > 5  # the file made, its header and pieces written, synced
    assert spmd(restored, 3, tmp_path) == [20] * 3


@pytest.mark.parametrize("rank", range(3))
def test_where_that_ends_the_run_nothing_of_it_is_left(tmp_path, rank):
    def refused(comm):
        store(comm, tmp_path, 1, 20, disk=FullDisk(3 if comm.rank == rank else None, errno.ENOSPC))

    with pytest.raises(CheckpointError, match=f"rank {rank}: .*No space left"):
        sd.run(refused, 3)
    assert not names(tmp_path)


def test_a_folder_that_cannot_be(spmd, tmp_path):
    def put(comm):
        root = shared(comm, tmp_path)
        if comm.rank == 0:
            (tmp_path / "file").write_text("")
        comm.barrier()
        return attempt(comm, store, f"{root}/file/folder"), attempt(comm, restored, f"{root}/file/folder")

    found = spmd(put, 2)
    assert found[0] == found[1]
    assert [kind for kind, _ in found[0]] == ["CheckpointError"] * 2


# -- what lies around --------------------------------------------------------------------------------


def test_leftovers_go_and_what_was_not_replaced_counts_again(spmd, tmp_path):
    def play(comm):
        root = tmp_path if comm.rank == 0 else None
        store(comm, tmp_path, step=10)
        store(comm, tmp_path, step=20)
        if root:
            (root / "step-20").rename(root / "step-20.old")
            (root / "step-30.tmp").mkdir()
            (root / "step-30.tmp" / "shard-00000.safetensors").write_bytes(b"half")
            (root / "step-40.tmp").mkdir()
            (root / "notes").mkdir()
            for name in ("step-0x", "step-050", "step-", "step-99.old.old"):
                (root / name).mkdir()
        comm.barrier()
        first = restored(comm, tmp_path)
        store(comm, tmp_path, step=30)
        comm.barrier()
        return first, restored(comm, tmp_path), restored(comm, tmp_path, step=20), names(root or ".")

    found = spmd(play, 2)
    others = ["step-0x", "step-050", "step-", "step-99.old.old"]
    assert found[0] == (20, 30, 20, sorted(["notes", *others, "step-10", "step-20", "step-30"]))
    assert found[1][:3] == (20, 30, 20)


@pytest.mark.parametrize("before", [[], [10], [10, 20], [30, 40]])
def test_one_that_is_there_is_replaced(tmp_path, before):
    prepare(tmp_path, [*before, 25])
    sd.run(lambda comm: save(tmp_path, comm, 25, {}, comm.size), 4)
    assert read_manifest(tmp_path, 25).extra == 4
    assert names(tmp_path) == sorted(f"step-{step}" for step in [*before, 25])


def test_the_oldest_go(spmd, tmp_path):
    def play(comm):
        there = []
        for step in (1, 2, 10, 9, 100):
            save(shared(comm, tmp_path), comm, step, {}, keep=2)
            there.append(names(shared(comm, tmp_path)))
            comm.barrier()
        return there

    assert spmd(play, 2)[0] == [
        ["step-1"],
        ["step-1", "step-2"],
        ["step-10", "step-2"],
        ["step-10", "step-9"],
        ["step-10", "step-100"],
    ]


def test_a_leftover_that_is_no_folder_is_told_on_all_ranks(spmd, tmp_path):
    def put(comm):
        if comm.rank == 0:
            (tmp_path / "step-5.tmp").symlink_to("/")
        comm.barrier()
        return attempt(comm, store, tmp_path, step=5)

    found = spmd(put, 2)
    assert found[0] == found[1] and found[0][0] == "CheckpointError" and "step-5.tmp" in found[0][1]
