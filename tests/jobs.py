"""Jobs that tests start: `simdist run` in a session of its own, with an end."""

import os
import shutil
import signal
import subprocess
import sys
import time
from argparse import ArgumentParser
from pathlib import Path
from typing import NamedTuple

import pytest

from simdist.launch.mpirun import find_mpirun

ROOT = Path(__file__).parent.parent
MPIRUN = shutil.which("mpirun", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")

needs_mpi = pytest.mark.skipif(MPIRUN is None, reason="no MPI here: pip install 'simdist[mpi]' brings one")


def can_survive():
    """Whether the launcher is one of Open MPI's that knows `--with-ft`."""
    if MPIRUN is None:
        return False
    mpirun = find_mpirun()
    return mpirun.kind == "openmpi" and mpirun.version >= 5


needs_ulfm = pytest.mark.skipif(not can_survive(), reason="needs Open MPI from 5 on, which can survive a rank's death")


def executed(verb, *words):
    """The exit code of a verb's module, in this process."""
    parser = ArgumentParser()
    verb.add_arguments(parser)
    return verb.execute(parser.parse_args(words))


class Done(NamedTuple):
    """How a job ended, and all it said."""

    code: int
    output: str


def job(ranks, *command, timeout_s=120.0, folder=ROOT, under=(), **variables):
    """Start so many ranks of a script or `-m` module; kill them all if they outlast their time. `under` is a command
    that starts another.
    """
    words = [*under, sys.executable, "-m", "simdist", "run", "-n", str(ranks), *map(str, command)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")]), **variables}
    process = subprocess.Popen(
        words,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=folder,
        env=environment,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        pytest.fail(f"{' '.join(words)} did not end within {timeout_s} s:\n{output[-5000:]}")
    return Done(process.returncode, output)


def until(condition, timeout_s=60.0):
    """Wait until it holds."""
    end_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end_s
        time.sleep(0.02)
