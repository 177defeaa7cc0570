import os
import signal
import subprocess
import sys
import threading
from signal import SIG_IGN, SIGINT, SIGTERM, SIGUSR1, SIGUSR2

import pytest
from checkpointing import restored, store
from jobs import ROOT

import simdist as sd
from simdist.comm.solo import SoloCommunicator
from simdist.launch.mpirun import DEAF
from simdist.launch.signals import handled
from simdist.training import interrupts
from simdist.training.interrupts import Interrupts

HEARD = (SIGINT, SIGTERM, SIGUSR1)


def handlers():
    return [signal.getsignal(number) for number in (*HEARD, SIGUSR2)]


def send(*numbers):
    for number in numbers:
        os.kill(os.getpid(), number)


def steps(comm, sent):
    """What is agreed at the end of each of 8 steps, where sent[rank, step] comes in the middle of one."""
    heard = []
    with Interrupts() as asked:
        for step in range(8):
            if (comm.rank, step) in sent:
                send(*sent[comm.rank, step])
            heard.append([int(number) for number in asked.agreed(comm)])
    return heard


@pytest.mark.parametrize("number", HEARD)
@pytest.mark.parametrize("p", [1, 2, 4])
def test_all_hear_at_the_end_of_the_step_what_one_heard_in_it(spmd, p, number):
    before = handlers()
    for rank in range(p):
        assert spmd(steps, p, {(rank, 3): (number,)}) == [[[], [], [], [number], [], [], [], []]] * p
    assert handlers() == before


def test_several(spmd):
    sent = {(0, 1): (SIGINT,), (1, 1): (SIGTERM, SIGUSR1), (1, 4): (SIGUSR1,), (0, 5): (SIGUSR1,), (1, 7): (SIGINT,)}
    assert spmd(steps, 2, sent) == [[[], [SIGINT, SIGTERM, SIGUSR1], [], [], [SIGUSR1], [SIGUSR1], [], [SIGINT]]] * 2


def test_virtual_ranks_share_a_process_and_may_end_in_any_order(tmp_path):
    def program(comm):
        with Interrupts() as asked:
            if comm.rank == 1:
                send(SIGUSR1)
            found = asked.agreed(comm)
            while not found:
                found = asked.agreed(comm)
            comm.compute(seconds=[3, 1, 2][comm.rank])
        return [int(number) for number in found]

    before = handlers()
    assert sd.run(program, 3).results == [[SIGUSR1]] * 3
    assert handlers() == before


def test_what_comes_after_the_block_does_what_it_did(spmd):
    class Heard(Exception):
        pass

    def hear(number, frame):
        raise Heard

    before = signal.signal(SIGUSR1, hear)
    try:
        with Interrupts() as asked:
            send(SIGUSR1)
            assert asked.agreed(SoloCommunicator()) == [SIGUSR1]
        with pytest.raises(Heard):
            send(SIGUSR1)
        with pytest.raises(ZeroDivisionError), Interrupts():
            1 / 0  # noqa: B018
        assert signal.getsignal(SIGUSR1) is hear
    finally:
        signal.signal(SIGUSR1, before)


def test_what_is_ignored_stays_ignored(spmd):
    before = [signal.signal(number, signal.SIG_IGN) for number in HEARD]
    try:
        assert spmd(steps, 2, {(1, 3): HEARD}) == [[[], [], [], [SIGUSR1], [], [], [], []]] * 2
        assert [signal.getsignal(number) for number in HEARD] == [signal.SIG_IGN] * 3
    finally:
        for number, handler in zip(HEARD, before, strict=True):
            signal.signal(number, handler)


def test_an_impatient_second_one_ends_it_at_once(monkeypatch):
    with Interrupts():
        send(SIGINT, SIGINT, SIGINT)  # as mpirun and the terminal pass it on
        monkeypatch.setattr(interrupts, "_PATIENCE_S", 0)
        send(SIGUSR1, SIGUSR1)  # which would end the process
        with pytest.raises(KeyboardInterrupt):
            send(SIGINT)
    assert signal.getsignal(SIGINT) is signal.default_int_handler


def test_a_step_makes_it_patient_again(monkeypatch):
    monkeypatch.setattr(interrupts, "_PATIENCE_S", 0)
    with Interrupts() as asked:
        for _ in range(3):
            send(SIGINT)
            assert asked.agreed(SoloCommunicator()) == [SIGINT]


def test_signals_of_ones_own(spmd):
    before = handlers()
    with Interrupts(SIGUSR2) as asked:
        send(SIGUSR2)
        assert handlers()[:3] == before[:3]
        assert asked.agreed(SoloCommunicator()) == [SIGUSR2]
    assert handlers() == before


@pytest.mark.parametrize(("before", "found"), [((), [[], [SIGUSR1]]), ((SIGUSR1,), [[SIGUSR1], []])])
def test_what_comes_while_they_agree_is_told_once(monkeypatch, before, found):
    with Interrupts() as asked:
        send(*before)
        with monkeypatch.context() as patch:
            patch.setattr(interrupts, "all_reduce", lambda *_, **__: send(SIGUSR1))
            first = asked.agreed(SoloCommunicator())
        assert [first, asked.agreed(SoloCommunicator())] == found


def test_a_thread_hears_nothing_and_needs_nothing():
    found = []

    def work():
        with Interrupts() as asked:
            found.append(asked.agreed(SoloCommunicator()))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(10)
    assert found == [[]]


def test_leaves_a_checkpoint(spmd, tmp_path):
    def train(comm):
        with Interrupts() as asked:
            for step in range(100):
                if comm.rank == 1 and step == 5:
                    send(SIGUSR1)
                if asked.agreed(comm):
                    store(comm, tmp_path, step=step + 1)
                    break
        comm.barrier()
        return step, restored(comm, tmp_path)

    assert spmd(train, 3) == [(5, 6)] * 3


def test_until_somebody_listens_a_signal_may_do_nothing():
    before = handlers()
    with handled([SIGUSR1], SIG_IGN):
        send(SIGUSR1)
        with Interrupts() as asked:
            send(SIGUSR1)
            assert asked.agreed(SoloCommunicator()) == [SIGUSR1]
        send(SIGUSR1)
    assert handlers() == before


def test_ranks_may_be_started_deaf(tmp_path):
    (tmp_path / "script.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGUSR1)\nprint('here')\n")
    words = [sys.executable, "-m", "simdist.launch.rank_process", str(tmp_path / "script.py")]
    for told, code in (({DEAF: str(int(SIGUSR1))}, 0), ({}, -SIGUSR1)):
        done = subprocess.run(
            words, env=os.environ | {"PYTHONPATH": str(ROOT)} | told, capture_output=True, check=False
        )
        assert done.returncode == code
        assert (b"here" in done.stdout) == (code == 0)
