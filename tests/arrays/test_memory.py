import subprocess
import sys

import pytest

PROGRAM = """
import resource
import numpy as np
from simdist.arrays.memory import keep_freed_memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        np.ones(1 << 21)  # 16 MiB, 4096 pages
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

told = keep_freed_memory()
faults()
print(told, faults())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's malloc")
def test_arrays_reuse_memory():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=True)
    told, faults = done.stdout.split()
    assert told == "False" or int(faults) < 4096, "not one array's worth of pages in twenty"
