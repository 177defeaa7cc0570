"""The sum of one number over ranks."""

import pytest

from simdist.parallel.total import total


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_every_rank_counts_once(spmd, ranks):
    def program(comm):
        found = total(10**comm.rank, comm)
        num_bytes = sum(span.bytes for span in comm.recorder.spans() if span.name.startswith("all_reduce"))
        return found, isinstance(found, float), num_bytes

    assert spmd(program, ranks) == [(float("1" * ranks), True, 8)] * ranks
