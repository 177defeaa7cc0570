import simdist as sd
from simdist.examples.parameter_server import main


def test_it_runs_and_all_ranks_hear_how_all_have_waited(spmd):
    every = spmd(main, 4, 10)
    assert all(found == every[0] for found in every)
    assert list(every[0]) == ["synchronous", "at most 3 steps apart", "asynchronous"]
    assert all(0 <= share <= 1 for shares in every[0].values() for share in shares)


def test_the_fast_wait_the_less_the_more_they_may_be_ahead_and_the_slow_never_do():
    shares = sd.run(main, 4, args=(10,)).results[0]
    synchronous, bounded, free = ([found[rank] for rank in (1, 3)] for found in shares.values())
    assert min(synchronous) > max(bounded) > min(bounded) > max(free)
    assert max(found[2] for found in shares.values()) < 0.01
