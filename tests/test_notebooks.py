"""Notebooks: the cells that are committed, and real ranks that a kernel starts."""

import os
import re
import subprocess
import sys
import time
from importlib import import_module
from importlib.util import find_spec, module_from_spec, spec_from_file_location

import pytest
from jobs import ROOT, needs_mpi

from simdist.comm.board import alive

# What they need is imported by fixtures: every process that collects tests would spend seconds on it here.
pytestmark = pytest.mark.skipif(
    not find_spec("jupytext") or not find_spec("jupyter_client"),
    reason="pip install 'simdist[notebooks]' brings what notebooks need",
)

NOTEBOOKS = ROOT / "notebooks"
START = """
import os, time
import simdist as sd
def pids(comm):
    print("pid", os.getpid(), flush=True)
    return os.getpid()
def naps(comm):
    pids(comm)
    time.sleep(100)
"""


@pytest.fixture(scope="module")
def kernel():
    manager = import_module("jupyter_client.manager")
    kernels, client = manager.start_new_kernel(kernel_name="python3", cwd=str(ROOT))
    yield Kernel(kernels, client)
    client.stop_channels()
    kernels.shutdown_kernel(now=True)


class Kernel:
    """A kernel whose cells say what they print as they print it."""

    def __init__(self, kernels, client):
        self.kernels, self.client = kernels, client

    def run(self, code, hears=lambda printed: None, timeout_s=60.0):
        """Run a cell: what it printed, and the traceback it ended with, if it did."""
        message = self.client.execute(code)
        printed, trace, end_s = "", "", time.monotonic() + timeout_s
        while time.monotonic() < end_s:
            said = self.client.get_iopub_msg(timeout=timeout_s)
            if said["parent_header"].get("msg_id") != message:
                continue
            content = said["content"]
            if said["msg_type"] == "stream":
                printed += content["text"]
                hears(printed)
            elif said["msg_type"] == "error":
                trace = re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(content["traceback"]))
            elif said["msg_type"] == "status" and content["execution_state"] == "idle":
                return printed, trace
        raise TimeoutError(f"this cell did not end within {timeout_s} s:\n{code}")


def gone(pids, within_s=10.0):
    end_s = time.monotonic() + within_s
    while any(alive(pid) for pid in pids) and time.monotonic() < end_s:
        time.sleep(0.02)
    return not any(alive(pid) for pid in pids)


@needs_mpi
def test_a_cell_that_is_interrupted_leaves_no_rank_behind_and_the_next_one_works(kernel):
    kernel.run(START)
    interrupted = []

    def interrupt(printed):
        if printed.count("pid") == 3 and not interrupted:
            interrupted.append(True)
            kernel.kernels.interrupt_kernel()

    printed, trace = kernel.run('sd.run(naps, ranks=3, world="mpi")', interrupt)
    pids = [int(word) for word in re.findall(r"pid (\d+)", printed)]
    assert "KeyboardInterrupt" in trace
    assert len(pids) == 3
    assert gone(pids)
    printed, trace = kernel.run('print(len(set(sd.run(pids, ranks=3, world="mpi").results)), "processes")')
    assert "3 processes" in printed
    assert not trace


@needs_mpi
def test_an_exception_on_a_rank_shows_that_ranks_traceback_in_the_cell(kernel):
    kernel.run(START)
    code = """
def divides(comm):
    pids(comm)
    share = 1 / (comm.rank - 2)
    comm.barrier()
sd.run(divides, ranks=3, world="mpi")
"""
    printed, trace = kernel.run(code)
    assert "ZeroDivisionError" in trace
    assert "raised on rank 2 of 3" in trace
    assert "in divides" in trace[trace.index("raised on rank 2 of 3") :]
    assert gone(int(word) for word in re.findall(r"pid (\d+)", printed))


def test_a_cell_that_needs_mpi_and_finds_none_says_what_it_needs(tmp_path):
    code = """
import sys, simdist as sd
from simdist.launch import mpirun
mpirun.shutil.which = lambda *_, **__: None
try:
    sd.run(print, ranks=2, world="mpi")
except sd.WorldUnavailable as missing:
    print(f"Passed over: {missing}")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert "Passed over: no MPI" in done.stdout
    assert "pip install 'simdist[mpi]'" in done.stdout


@pytest.fixture(scope="module")
def build():
    """build(*words) -> the exit code of notebooks/build.py, in this process: what it imports takes seconds."""
    spec = spec_from_file_location("build", NOTEBOOKS / "build.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)

    def run(*words):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "argv", ["build.py", *words])
            return module.main()

    return run


def test_each_notebook_has_the_cells_of_its_source_and_is_small(build, capsys):
    assert build("--check") == 0, capsys.readouterr()
    for made in NOTEBOOKS.glob("*.ipynb"):
        assert made.stat().st_size <= 300 * 1024, made.name
        assert made.with_suffix(".py").exists(), made.name
        text = made.read_text()
        assert str(ROOT) not in text and os.sep + "tmp" + os.sep not in text, made.name


@pytest.mark.parametrize(
    ("given", "error"),
    [
        (["99", "--check"], "no notebook's name begins with '99'"),
        (["--run", "--check"], "not allowed with argument --run"),
    ],
)
def test_build_refuses_arguments_that_it_would_ignore(build, capsys, given, error):
    with pytest.raises(SystemExit) as end:
        build(*given)
    assert end.value.code == 2
    assert error in capsys.readouterr().err
