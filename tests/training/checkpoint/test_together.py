"""What fails on one rank fails on all, with words of any length and from any language."""

import pytest

from simdist.errors import ArgumentError, ArrayError, CheckpointError, CorruptCheckpoint, DataError, UnknownNameError
from simdist.training.checkpoint.together import on_rank_0, together


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
        return together(comm, lambda: f"note {comm.rank}"), on_rank_0(comm, lambda: f"note {comm.rank}")

    assert spmd(program, 3) == [(["note 0", "note 1", "note 2"], "note 0")] * 3


def test_one_acts_for_all_and_need_not_say_anything(spmd):
    def program(comm):
        acted = []
        return on_rank_0(comm, lambda: acted.append(comm.rank)), acted

    assert spmd(program, 3) == [("", [0]), ("", []), ("", [])]


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (CorruptCheckpoint, CorruptCheckpoint),
        (DataError, DataError),
        (ArrayError, ArrayError),
        (UnknownNameError, ArgumentError),
        (OSError, CheckpointError),
        (PermissionError, CheckpointError),
    ],
)
@pytest.mark.parametrize("p", [1, 3])
def test_all_hear_it_as_the_nearest_of_the_kinds_that_are_told(spmd, error, kind, p):
    def program(comm):
        last = comm.size - 1

        def act():
            if comm.rank == last:
                raise error("no such luck")
            return ""

        with pytest.raises(kind) as caught:
            together(comm, act)
        return type(caught.value) is kind, str(caught.value), type(caught.value.__cause__) is error

    who = "rank 2: " if p > 1 else ""
    assert spmd(program, p) == [(True, f"{who}no such luck", r == p - 1) for r in range(p)]


def test_a_note_without_room_fails_on_all_ranks(spmd):
    def program(comm):
        with pytest.raises(ArgumentError) as caught:
            together(comm, lambda: "x" * (999 + (comm.rank == 1)))
        return str(caught.value)

    assert spmd(program, 2) == ["rank 1: a note of 1001 bytes on rank 1; at most 1000"] * 2


def test_a_file_name_that_is_no_text_is_told_all_the_same(spmd):
    def program(comm):
        with pytest.raises(CheckpointError) as caught:
            on_rank_0(comm, lambda: (_ for _ in ()).throw(CheckpointError("no file a\udcff")))
        return str(caught.value)

    assert spmd(program, 2) == ["rank 0: no file a\\udcff"] * 2
