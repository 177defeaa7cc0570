"""Messages of a pipeline: when their arrays are free, those that have left and those that have come."""

import weakref

from harness import xp as np
from pipeline_training import pipeline, trained

import simdist as sd
from simdist.arrays import Ledger, recorded
from simdist.parallel.pipeline import schedule, steps
from simdist.parallel.pipeline.executor import Messages


def begin(comm):
    """Rank 0 begins to send something large; whether it is over before and after rank 1 has asked for it."""
    x = np.full(1 << 20, comm.rank, np.uint8)
    told = []
    if comm.rank == 0:
        request = comm.isend(x, 1, 5)
        told.append(request.over)
        comm.barrier()
        comm.recv(np.empty(1), 1)  # rank 1 has it
        told.append(request.over)
        request.wait()
    else:
        comm.barrier()
        request = comm.irecv(x, 0, 5)
        request.wait()
        comm.send(np.empty(1), 0)
    return told, int(x[-1])


def test_a_send_says_when_it_is_over(spmd):
    (told, _), (_, got) = spmd(begin, 2)
    assert told == [False, True]
    assert got == 0


def let_go(comm):
    """Rank 0 sends an array and forgets it; whether it lives on before and after a look at what rank 1 has taken, and
    whether it should before: where the path to other ranks copies it first, it need not."""
    one = schedule("gpipe", stages=2, micro_batches=1)
    messages, step = Messages(one, comm, np.empty(0), np.dtype(float)), steps(one)[comm.rank][0]
    if comm.rank == 1:
        comm.barrier()
        messages.expect(step, lambda value: (1 << 17,))
        messages.wait(step.receives[0].value)
        comm.barrier()
        return None
    x = np.zeros(1 << 17)
    gone = weakref.ref(x)
    messages.send(step.sends[0], x)
    del x
    told = [gone() is not None]
    comm.barrier()
    comm.barrier()
    messages.drop_complete()
    return [*told, gone() is not None, comm.device.path not in ("ipc", "staged")]


def test_what_has_left_is_let_go(spmd):
    before, after, held = spmd(let_go, 2)[0]
    assert (before, after) == (held, False)


def passing(comm, m):
    """The most bytes that pass between layers and ranks, when this rank keeps all of m micro-batches."""
    method = pipeline(comm, "gpt", "gpipe", m)
    with recorded(ledger := Ledger()):
        trained(method, "gpt")
    return ledger.peaks["buffers"]


def test_what_has_come_is_let_go_unless_a_layer_keeps_it():
    few, many = (sd.run(passing, 2, args=(m,)).results[-1] for m in (2, 8))
    assert few == many
