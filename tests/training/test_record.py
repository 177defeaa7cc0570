import numpy as np

from simdist.collectives import all_reduce
from simdist.training import gather_trace


def program(comm):
    with comm.span("before"):
        first = len(comm.recorder.rows) + 1
    with comm.span("ünd", np.int64(3), micro_batch=2, detail='a "detail"'):
        all_reduce(np.ones(10), comm, algorithm="ring")
    own = [tuple(span) for span in comm.recorder.spans()[first:]]
    trace = gather_trace(comm, first=first)
    return own, None if trace is None else [tuple(span) for span in trace]


def test_the_record_of_all_ranks_comes_to_one(spmd):
    found = spmd(program, 3)
    assert [trace is None for _, trace in found] == [False, True, True]
    assert sorted(found[0][1]) == sorted(span for own, _ in found for span in own)
    assert any(span[2] == "ünd" for span in found[0][1])
