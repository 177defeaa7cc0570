"""Signals that wait for the end of a block, whatever becomes of it; who listens to which, and what they are called."""

import os
import signal
import threading
from pathlib import Path
from signal import SIGBUS, SIGHUP, SIGINT, SIGKILL, SIGTERM, SIGUSR2

import pytest

from simdist.launch.signals import ENDING, deferred, listens, signal_in, signal_words


class Heard(Exception):
    """A handler has been called, for this signal."""


@pytest.fixture(autouse=True)
def handlers():
    """SIGINT and SIGTERM raise Heard, and SIGHUP is ignored, as under nohup."""

    def hear(number, frame):
        raise Heard(number)

    before = [signal.signal(number, hear) for number in (SIGINT, SIGTERM)] + [signal.signal(SIGHUP, signal.SIG_IGN)]
    yield [hear, hear, signal.SIG_IGN]
    for number, handler in zip((SIGINT, SIGTERM, SIGHUP), before, strict=True):
        signal.signal(number, handler)


def send(*numbers):
    for number in numbers:
        os.kill(os.getpid(), number)


def test_the_first_is_heard_after_the_block(handlers):
    done = []

    def interrupted():
        with deferred():
            send(SIGTERM, SIGINT, SIGHUP)
            done.append("all")

    with pytest.raises(Heard) as caught:
        interrupted()
    assert (caught.value.args, done) == ((SIGTERM,), ["all"])
    assert [signal.getsignal(number) for number in ENDING] == handlers


def test_in_a_block_that_fails_they_are_dropped(handlers):
    def interrupted():
        with deferred():
            send(SIGINT)
            1 / 0  # noqa: B018

    with pytest.raises(ZeroDivisionError):
        interrupted()
    assert [signal.getsignal(number) for number in ENDING] == handlers


def test_no_handler_stays_none():
    signal.signal(SIGTERM, signal.SIG_DFL)
    with deferred():
        send(SIGHUP)
        assert signal.getsignal(SIGTERM) is signal.SIG_DFL


def test_a_thread_gets_no_signals(handlers):
    found = []

    def program():
        with deferred():
            found.extend(map(signal.getsignal, ENDING))

    thread = threading.Thread(target=program)
    thread.start()
    thread.join(60)
    assert found == handlers


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="this system does not say")
def test_a_process_listens_to_what_it_handles():
    found = [listens(os.getpid(), number) for number in (SIGINT, SIGTERM, SIGHUP, SIGUSR2)]
    assert found == [True, True, False, False]
    signal.signal(SIGTERM, signal.SIG_DFL)
    assert not listens(os.getpid(), SIGTERM)
    assert not listens(2**22 + 1, SIGINT), "a process that is gone does not"


def test_signals_in_words():
    assert signal_words(SIGKILL) == "was killed by signal 9 (SIGKILL)"
    assert signal_words(SIGBUS) == f"was killed by signal {int(SIGBUS)} (SIGBUS), as where /dev/shm is full"
    assert signal_words(250) == "was killed by signal 250"
    assert signal_in(f"the launcher: rank 3 {signal_words(11)}; signal 6") == 11
    assert signal_in("exit code 9") == 0
