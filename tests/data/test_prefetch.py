import subprocess
import sys
import threading
import time

import pytest

from simdist.data import Prefetcher
from simdist.errors import ArgumentError


def threads():
    return [thread for thread in threading.enumerate() if thread.name.startswith("prefetch")]


def until(condition):
    """Wait for what another thread is about to do."""
    for _ in range(1000):
        if condition():
            return
        time.sleep(0.005)
    raise TimeoutError


def test_all_in_order():
    with Prefetcher(lambda i: i * i, range(20)) as found:
        assert list(found) == [i * i for i in range(20)]
        with pytest.raises(StopIteration):
            next(found)
    assert threads() == []


def test_nothing_to_make():
    with Prefetcher(str, []) as found:
        assert list(found) == []


@pytest.mark.parametrize("depth", [1, 2, 5])
def test_it_is_only_so_far_ahead(depth):
    made = []
    with Prefetcher(made.append, range(100), depth) as found:
        until(lambda: len(made) == depth)
        time.sleep(0.02)
        assert len(made) == depth
        next(found)
        until(lambda: len(made) == depth + 1)
        time.sleep(0.02)
        assert len(made) == depth + 1


def test_it_is_made_elsewhere():
    with Prefetcher(lambda i: threading.current_thread().name, range(3)) as found:
        assert all(name.startswith("prefetch") for name in found)


def test_an_error_is_raised_where_the_result_is_taken():
    def make(i):
        if i == 2:
            raise ValueError("no batch 2")
        return i

    with Prefetcher(make, range(5)) as found:
        assert [next(found), next(found)] == [0, 1]
        with pytest.raises(ValueError, match="no batch 2"):
            next(found)
    assert threads() == []


@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError])
def test_nothing_is_left_behind(error):
    made = []

    def fail():
        with Prefetcher(made.append, range(100)) as found:
            next(found)
            raise error

    with pytest.raises(error):
        fail()
    assert threads() == []
    assert len(made) <= 4


def test_what_was_not_taken_is_forgotten():
    with Prefetcher(str, range(9)) as found:
        next(found)
    assert list(found) == []


def test_a_depth_of_nothing_is_refused():
    for depth in (0, 1.5):
        with pytest.raises(ArgumentError, match=f"depth is {depth}; needs"):
            Prefetcher(str, [], depth)
    assert threads() == []


def test_numbers_that_raise_leave_no_thread():
    with pytest.raises(ZeroDivisionError):
        Prefetcher(str, (1 // n for n in range(3)))
    assert threads() == []


_INTERRUPTED = """
import threading
from simdist.data import Prefetcher

start = threading.Thread.start

def interrupted(thread):
    start(thread)
    raise KeyboardInterrupt

threading.Thread.start = interrupted
try:
    Prefetcher(str, range(3))
except KeyboardInterrupt as error:
    kept = error
    print("interrupted")
"""


def test_a_process_that_is_interrupted_while_the_thread_starts_ends():
    job = subprocess.run([sys.executable, "-c", _INTERRUPTED], capture_output=True, text=True, timeout=30)
    assert (job.returncode, job.stdout) == (0, "interrupted\n")
