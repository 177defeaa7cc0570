"""What fibers do to the stack of the program they run in, and who may not wait in their place."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from simdist import run
from simdist.collectives import all_reduce
from simdist.errors import ArgumentError

# To save memory NumPy may put the sum over x + 1, unless anybody else sees that array. To find out it follows the
# stack of C back to where the program began. That of a fiber ends sooner, where the one that entered it left off: what
# lies there must look as it did then, or it leads nowhere, and the whole process is gone. So fibers are always entered
# in one and the same way.
PLAIN = """
import numpy as np
import simdist as sd

def program(comm):
    x = np.ones(1 << 15)
    for _ in range(20):
        comm.sendrecv(np.ones(1), (comm.rank + 1) % comm.size, np.ones(1), (comm.rank - 1) % comm.size)
        y = 2.0 * (x + 1)
    return float(y[-1])

assert sd.run(program, RANKS).results == [4.0] * RANKS
"""

STREAMS = """
import numpy as np
import simdist as sd

def reckon(x, comm):
    for _ in range(20):
        comm.sendrecv(np.ones(1), (comm.rank + 1) % comm.size, np.ones(1), (comm.rank - 1) % comm.size)
        y = 2.0 * (x + 1)
    return float(y[-1])

def program(comm):
    x = np.ones(1 << 15)
    side = list(map(comm.stream, ["side"]))[0]  # entered from C
    work = side.start(reckon, x, side.comm)
    return reckon(x, comm), work.wait()

assert sd.run(program, RANKS).results == [(4.0, 4.0)] * RANKS
"""


@pytest.mark.parametrize("ranks", [2, 64])
@pytest.mark.parametrize("script", [PLAIN, STREAMS], ids=["plain", "streams"])
def test_numpy_may_look_back_along_the_stack(script, ranks):
    script = script.replace("RANKS", str(ranks))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


CALLS = {
    "send": lambda comm: comm.send(np.zeros(1), 1),
    "recv": lambda comm: comm.recv(np.zeros(1), 1),
    "sendrecv": lambda comm: comm.sendrecv(np.zeros(1), 1, np.zeros(1), 1),
    "split": lambda comm: comm.split(0, 0),
    "barrier": lambda comm: comm.barrier(),
    "all_reduce": lambda comm: all_reduce(np.zeros(1), comm),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_communicator_is_of_no_use_after_its_run(call):
    comm = run(lambda comm: comm, 2).results[0]
    with pytest.raises(ArgumentError, match="^a communicator is used after the end of its run$"):
        call(comm)


@pytest.mark.parametrize("call", [CALLS["recv"], CALLS["all_reduce"]], ids=["recv", "all_reduce"])
def test_the_run_within_a_run_has_communicators_of_its_own(call):
    with pytest.raises(ArgumentError, match="^the communicator of rank 0 is used by another run or thread"):
        run(lambda outer: run(lambda inner: call(outer), 2), 2)


def test_a_thread_cannot_wait_for_its_ranks_messages():
    def program(comm):
        with ThreadPoolExecutor(1) as pool:
            return str(pool.submit(comm.recv, np.zeros(1), 1 - comm.rank).exception(timeout=60))

    assert run(program, 2).results == [
        f"the communicator of rank {rank} is used by another run or thread" for rank in range(2)
    ]
