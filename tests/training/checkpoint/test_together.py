"""What fails on one rank fails on all, with words of any length and from any language."""

import pytest

from simdist.errors import CheckpointError
from simdist.training.checkpoint.together import by_one, together


@pytest.mark.parametrize("letter", ["a", "é", "語"])
def test_all_hear_the_beginning_of_a_long_story(spmd, letter):
    def program(comm):
        def act():
            if comm.rank == 1:
                raise CheckpointError(letter * 3000)
            return ""

        with pytest.raises(CheckpointError) as caught:
            together(comm, act)
        return str(caught.value)

    found = spmd(program, 3)
    assert len(set(found)) == 1
    assert found[0].startswith(f"rank 1: {letter * 200}") and set(found[0][8:]) == {letter}


def test_notes_are_told_by_rank_and_by_one_of_rank_0(spmd):
    def program(comm):
        return together(comm, lambda: f"note {comm.rank}"), by_one(comm, lambda: f"note {comm.rank}")

    assert spmd(program, 3) == [(["note 0", "note 1", "note 2"], "note 0")] * 3


def test_a_file_name_that_is_no_text_is_told_all_the_same(spmd):
    def program(comm):
        with pytest.raises(CheckpointError) as caught:
            by_one(comm, lambda: (_ for _ in ()).throw(CheckpointError("no file a\udcff")))
        return str(caught.value)

    assert spmd(program, 2) == ["rank 0: no file a\\udcff"] * 2
