"""What fibers do to the stack of the program they run in."""

import subprocess
import sys

import pytest

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
