"""The death of a rank as the others see it, in a job of real ranks that survives it."""

import json

from jobs import job, needs_mpi, needs_ulfm

import simdist as sd

SCRIPT = """
import json, os, signal
import numpy as np
import simdist as sd
from simdist.collectives import all_reduce
from simdist.errors import PeerLost

comm, x, y = sd.world(), np.zeros(1), np.zeros(1)
assert comm.survive() and comm.lost() == [] and comm.survivors() is comm
peers = comm.shadow.peers()
peers.meet()
if comm.rank == 1:
    os.kill(os.getpid(), signal.SIGKILL)

def told(call, *args):
    try:
        call(*args)
    except PeerLost as error:
        return str(error)

errors = [told(peers.meet), told(comm.recv, x, 1), told(comm.recv, x), told(comm.probe, 9, comm.clock() + 60)]
errors.append(told(comm.irecv(np.zeros(1), tag=9).wait))
lost = comm.lost()
onward = {0: 2, 2: 3, 3: 0}[comm.rank]
request = comm.isend(np.full(1, 10.0**comm.rank), onward)
comm.recv(y)  # of anybody who lives
request.wait()
alive = comm.survivors()
total = np.array([10**comm.rank])
all_reduce(total, alive)
names = [alive.ranks, alive.rank, alive.context, alive.survivors() is alive, alive.lost()]
os.write(1, ("told " + json.dumps([comm.rank, errors, lost, y[0], int(total[0]), *names]) + "\\n").encode())
"""


@needs_ulfm
def test_who_is_left_hears_of_it_and_goes_on(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    code, output = job(4, "--survive", tmp_path / "script.py", timeout_s=60)
    assert code == 0 and "the job was ended" not in output and "Traceback" not in output, output
    told = sorted(json.loads(line.removeprefix("told ")) for line in output.splitlines() if line.startswith("told "))
    assert told == [
        [
            rank,
            [
                f"a meeting on rank {rank} of 'world.collective', with rank 1: rank 1 died",
                f"recv on rank {rank} of 'world', with rank 1, which has died",
                f"recv on rank {rank} of 'world', with any rank, of which one has died",
                f"probe on rank {rank} of 'world', with any rank, of which one has died",
                f"recv on rank {rank} of 'world', with any rank, of which one has died",
            ],
            [1],
            10.0**before,
            1101,
            [0, 2, 3],
            place,
            "world/1:alive",
            True,
            [],
        ]
        for place, (rank, before) in enumerate([(0, 3), (2, 0), (3, 2)])
    ]


@needs_mpi
def test_who_looks_for_the_dead_again_and_again_leaves_no_groups_of_mpi_behind():
    def program(comm):
        every = comm._group.mpi.Get_group()
        return comm._group.members(every), bool(every)

    assert sd.run(program, 2, world="mpi").results == [([0, 1], False)] * 2
