import numpy as np
import pytest
from harness import virtual

from simdist.examples.gossip import main


@pytest.mark.parametrize("p", [1, 2, 3, 4, 5, 8])
def test_all_come_near_the_mean_and_nearer_with_more_steps(p):
    """On virtual ranks only: real ones come to the same, and would take seconds each."""
    some, more = np.array(virtual(main, p, 200)), np.array(virtual(main, p, 2000))
    assert more.max() < 0.06
    np.testing.assert_allclose(some, more * 2009 / 209, rtol=0.1, atol=1e-12)


@pytest.mark.parametrize("p", [2, 5])
def test_nobody_talks_to_others_than_its_neighbours(spmd, p):
    def program(comm):
        first = len(comm.recorder.rows)
        main(comm, 3)
        return sorted({s.peer for s in comm.recorder.spans()[first:] if s.name == "send"})

    for rank, peers in enumerate(spmd(program, p)):
        assert peers == sorted({(rank - 1) % p, (rank + 1) % p})
