import subprocess
import sys
import threading
import time
from types import SimpleNamespace
from weakref import ref

import numpy as np
import pytest

import simdist as sd
from simdist.arrays import phantom
from simdist.collectives import all_gather, all_reduce, broadcast
from simdist.comm import ANY, Status
from simdist.comm.solo import SoloCommunicator
from simdist.errors import ArgumentError, ArrayError, DeadlockError, MessageMismatch


@pytest.fixture
def comm():
    return SoloCommunicator()


def test_without_mpirun_the_world_is_one_rank_and_mpi_is_not_loaded():
    code = "import simdist as sd, sys; c = sd.world(); print(c.size, c.rank, c is sd.world(), 'mpi4py' in sys.modules)"
    code += "; print(sys.excepthook is sys.__excepthook__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == ["1", "0", "True", "False", "True"]


def test_collectives_of_one_leave_things_as_they_are(comm):
    x = np.arange(5)
    all_reduce(x, comm)
    broadcast(x, comm)
    assert all_gather(x, comm).tolist() == x.tolist() == [0, 1, 2, 3, 4]
    comm.barrier()


def test_messages_to_itself_arrive_by_tag_and_in_order(comm):
    for i in range(4):
        comm.send(np.array([i]), 0, tag=i % 2)
    y = np.zeros(1, int)
    got = []
    for tag in (1, ANY, 0, 1):
        got.append((comm.recv(y, 0, tag).tag, int(y[0])))
    assert got == [(1, 1), (0, 0), (0, 2), (1, 3)]


def test_a_message_is_a_copy(comm):
    x, y = np.zeros(3), np.ones(3)
    request = comm.irecv(y)
    comm.send(x, 0)
    x[:] = 7
    assert request.wait() == request.wait() == Status(0, 0, 24)
    assert y.tolist() == [0, 0, 0]


@pytest.mark.parametrize("y", [phantom(3), np.ones((3, 2)).T, np.broadcast_to(1.0, 3), [1.0]])
def test_an_exchange_that_is_refused_sends_nothing(comm, y):
    with pytest.raises(ArrayError, match="rank 0"):
        comm.sendrecv(np.ones(3), 0, y, 0)
    assert not comm.probe()


def test_a_send_is_over_at_once_and_a_receive_when_its_wait_has_returned(comm):
    received, sent = comm.irecv(np.zeros(3)), comm.isend(np.ones(3), 0)
    assert sent.over and not received.over
    received.wait()
    assert received.over


def test_waiting_for_nobody_is_a_deadlock(comm):
    with pytest.raises(DeadlockError, match="with tag 3 from itself"):
        comm.recv(np.zeros(1), 0, 3)


def test_what_cannot_be_is_refused(comm):
    fixed = np.zeros(1)
    fixed.flags.writeable = False
    with pytest.raises(ArgumentError, match="dst 1 on rank 0"):
        comm.send(np.zeros(1), 1)
    with pytest.raises(ArgumentError, match="tag -3 on rank 0"):
        comm.send(np.zeros(1), 0, -3)
    with pytest.raises(ArgumentError, match="src -1 on rank 0"):
        comm.sendrecv(np.zeros(1), 0, np.zeros(1), ANY)
    with pytest.raises(ArrayError, match="needs to be contiguous"):
        comm.send(np.zeros((3, 3))[:, 0], 0)
    with pytest.raises(ArrayError, match="is read-only"):
        comm.recv(fixed)
    comm.send(np.zeros(3), 0)
    with pytest.raises(MessageMismatch, match="longer than the 16 bytes"):
        comm.recv(np.zeros(2))


def test_groups_and_streams_have_mail_of_their_own(comm):
    side, group, y = comm.stream("side"), comm.split(4), np.zeros(1, int)
    comm.send(np.array([1]), 0)
    group.send(np.array([2]), 0)
    side.start(side.comm.send, np.array([3]), 0).wait()
    comm.shadow.send(np.array([4]), 0)
    got = []
    for c in (comm.shadow, side.comm, group, comm):
        c.recv(y)
        got.append(int(y[0]))
    assert got == [4, 3, 2, 1]
    assert [c.context for c in (comm.shadow, side.comm, group)] == ["world.collective", "world.side", "world/1:4"]
    assert comm.split(None) is None
    assert comm.split(True).context == "world/3:1"
    assert {span.stream for span in comm.recorder.spans()} == {"main", "side"}


def test_streams_of_one_name_are_told_apart(comm):
    assert [comm.stream("side").comm.context for _ in range(2)] == ["world.side", "world.side 2"]
    assert comm.stream("collective").comm.context != comm.shadow.context


def test_waiting_for_work_is_on_the_record(comm):
    side = comm.stream("side")
    side.start(time.sleep, 0.05).wait()
    (span,) = comm.recorder.spans()
    assert (span.stream, span.name, span.rank) == ("main", "wait for side", 0)
    assert 0 < span.seconds < 60


def test_work_on_a_stream_hands_back_what_it_raised(comm):
    side = comm.stream("side")
    with pytest.raises(ZeroDivisionError):
        side.start(divmod, 1, 0).wait()
    assert side.start(divmod, 7, 2).wait() == (3, 1)


def test_work_on_a_stream_that_cannot_use_its_device_raises_and_is_not_waited_for_in_vain(comm):
    side = comm.stream("side")
    side.comm.device = SimpleNamespace(enter=lambda: 1 // 0)
    work = side.start(len, "")
    assert work._done.wait(10)
    with pytest.raises(ZeroDivisionError):
        work.wait()


def test_one_stream_that_waits_for_another_leaves_the_wait_of_the_main_one_alone(comm):
    a, b, begin = comm.stream("a"), comm.stream("b"), threading.Event()
    work = a.start(begin.wait)
    comm.line.waiting = wait = "recv", comm, 0, 0
    waiter = b.start(work.wait)
    time.sleep(0.05)
    begin.set()
    while not waiter._done.is_set():
        time.sleep(0.01)
    assert comm.line.waiting is wait
    assert [(span.stream, span.name) for span in comm.recorder.spans()] == [("b", "wait for a")]


def test_a_stream_that_waits_for_its_own_later_work_is_a_deadlock(comm):
    side = comm.stream("side")
    with pytest.raises(DeadlockError, match="stream 'side' waits for work that it is to do later"):
        side.start(lambda: side.start(int).wait()).wait()


def test_a_stream_lets_go_of_what_it_has_done(comm):
    x, end_s = np.ones(3), time.monotonic() + 60
    alive = ref(x)
    comm.stream("side").start(np.sum, x).wait()
    del x
    while alive() is not None and time.monotonic() < end_s:
        time.sleep(0.001)
    assert alive() is None


def test_a_stream_that_ends_leaves_the_wait_that_it_is_part_of(comm):
    side, begin = comm.stream("side"), threading.Event()
    side.start(begin.wait)
    comm.line.waiting = wait = "free", comm, None, 0
    ender = threading.Thread(target=side.drain)
    ender.start()
    while comm.line.waiting is wait:
        time.sleep(0.001)
    begin.set()
    ender.join()
    assert comm.line.waiting is wait


@pytest.mark.parametrize(
    ("work", "code", "told"),
    [
        ("print('done')", 0, "done"),
        ("1 / 0", 1, "ZeroDivisionError: division by zero"),
        ("exit(3)", 1, "SystemExit: 3"),
    ],
)
def test_work_that_nobody_waits_for_is_done_before_the_process_ends(work, code, told):
    program = f"import simdist as sd, time; sd.world().stream('side').start(lambda: (time.sleep(0.2), {work}))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == code
    assert (done.stdout + done.stderr).splitlines()[-1] == told


def test_the_world_runs_a_program_of_any_size():
    def program(comm):
        x = np.arange(3.0)
        all_reduce(x, comm, algorithm="ring")
        return x

    assert program(sd.world()).tolist() == sd.run(program, 1).results[0].tolist()
