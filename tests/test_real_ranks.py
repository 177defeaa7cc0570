"""The tests that run in both worlds, on real ranks; and the harness that carries them there, put to the test."""

import re
import shutil
import textwrap

import pytest
from jobs import ROOT, job, needs_mpi

pytestmark = needs_mpi


def run_tests(ranks, *arguments, **options):
    """pytest on real ranks."""
    return job(ranks, "-m", "pytest", "-q", "--color=no", "-p", "no:cacheprovider", *arguments, **options)


def test_every_test_of_both_worlds():
    """On as many ranks as most of them need; .ci/run does it with more cases, and on fewer ranks too."""
    done = run_tests(4, "--cases", "1", timeout_s=1500.0, SIMDIST_TIMEOUT_S="120")  # see conftest.py
    assert done.code == 0, done.output[-8000:]
    assert " passed" in done.output


@pytest.fixture
def tests(tmp_path):
    """A function that writes a file of tests beside a copy of the harness, and returns what to give to pytest."""
    shutil.copy(ROOT / "tests/conftest.py", tmp_path)

    def write(text):
        file = tmp_path / "test_here.py"
        file.write_text("import os\nimport numpy as np\nimport pytest\n" + textwrap.dedent(text))
        return ["-c", ROOT / "pyproject.toml", "--rootdir", tmp_path, "-rA", "--tb=short", file]

    return write


def test_what_fails_on_one_rank_fails_on_all_and_nothing_else_does(tests):
    done = run_tests(
        3,
        *tests("""
            from simdist.collectives import all_reduce
            from simdist.errors import ArgumentError

            def total(comm):
                x = np.array([10**comm.rank])
                all_reduce(x, comm)
                return x

            def test_inside(spmd):
                def program(comm):
                    comm.barrier()
                    if comm.rank == 0:
                        comm.send(np.array([13]), 1)  # nobody will ever take it
                    assert comm.rank != 1, "rank 1 finds fault"
                spmd(program, 3)

            def test_after_it(spmd):
                def program(comm):
                    y = np.array([0])
                    if comm.rank == 0:
                        comm.send(np.array([40]), 1)
                    if comm.rank == 1:
                        comm.recv(y, 0)
                    return y
                assert spmd(program, 3)[1].tolist() == [40]
                assert [x.tolist() for x in spmd(total, 3)] == [[111]] * 3

            def test_outside(spmd):
                ranks = spmd(lambda comm: os.getpid(), 3)
                assert ranks.index(os.getpid()) != 2, "rank 2 has doubts"

            def test_all_hear_what_one_raises(spmd):
                def program(comm):
                    if comm.rank == 2:
                        raise ArgumentError("two is too many")
                with pytest.raises(ArgumentError, match="two is too many"):
                    spmd(program, 3)

            def test_fewer_ranks(spmd):
                assert [x.tolist() for x in spmd(total, 2)] == [[11]] * 2

            def test_more_ranks(spmd):
                spmd(total, 4)

            def test_results_travel(spmd):
                def program(comm):
                    return {"a": (1, 2.5, None, True), "b": [np.arange(3), np.float32(1.5), "text"]}
                for result in spmd(program, 3):
                    assert result["a"] == (1, 2.5, None, True)
                    assert result["b"][0].tolist() == [0, 1, 2]
                    assert result["b"][1].dtype == np.float32 and result["b"][2] == "text"

            def test_not_for_ranks():
                assert False
            """),
    )
    assert done.code == 1, done.output
    assert "rank 1 finds fault" in done.output
    assert "rank 2 has doubts" in done.output
    assert re.findall(r"^FAILED .*::(\w+)", done.output, re.MULTILINE) == ["test_inside", "test_outside"]
    assert "needs 4 ranks" in done.output
    assert "2 failed, 4 passed, 1 skipped, 1 deselected" in done.output


def test_a_rank_that_fails_while_others_wait_for_it_ends_the_job(tests):
    done = run_tests(
        2,
        *tests("""
            def test_blocks(spmd):
                def program(comm):
                    if comm.rank == 1:
                        raise KeyError("where is it?")
                    comm.recv(np.zeros(1), 1)
                spmd(program, 2)
            """),
        timeout_s=60.0,
        SIMDIST_GRACE_S="1",
    )
    assert done.code != 0
    assert "rank 1 failed while others are still inside the test" in done.output
    assert "KeyError: 'where is it?'" in done.output


def test_ranks_with_different_tests_do_not_begin(tests):
    done = run_tests(
        2,
        *tests("""
            from simdist import world

            @pytest.mark.parametrize("i", range(2 + world().rank))
            def test_uneven(spmd, i):
                pass
            """),
    )
    assert done.code == 3, done.output
    assert "the ranks found different tests: 2 tests" in done.output
