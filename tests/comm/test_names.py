"""Names by which the record tells things apart."""

from functools import partial

import numpy as np
import pytest

from simdist.errors import ArgumentError, CollectiveMismatch


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("name", ["main", "", 3])
def test_a_second_stream_has_a_name_of_its_own(spmd, ranks, name):
    """Two called main would be one in the record, and what overlaps in them would not count as hidden."""

    def program(comm):
        with pytest.raises(ArgumentError, match=rf"a stream named {name!r} on rank {comm.rank}: needs a name other"):
            comm.stream(name)

    spmd(program, ranks)


def test_ranks_ask_for_the_same_stream(spmd):
    """Messages on one would never match those on another."""
    with pytest.raises(CollectiveMismatch, match="(?s)stream .mine.*stream .yours"):
        spmd(lambda comm: comm.stream(("mine", "yours")[comm.rank]), 2)


@pytest.mark.parametrize("name", ["send", "recv"])
def test_blocks_and_work_are_not_counted_as_messages(spmd, name):
    def program(comm):
        def block():
            with comm.span(name, 10):
                pass

        for named in (block, partial(comm.compute, 1.0, name=name), partial(comm.spend, 0, name)):
            with pytest.raises(ArgumentError, match=f"a span named '{name}' on rank {comm.rank}: so are messages"):
                named()
        with comm.span(f"my {name}", 10):
            comm.sendrecv(np.zeros(3), 1 - comm.rank, np.zeros(3), 1 - comm.rank)

    spmd(program, 2)


@pytest.mark.parametrize("name", ["Get_rank", "get_rank", "allreduce", "Barrier"])
def test_names_of_other_libraries_are_answered_with_where_things_are(spmd, name):
    def program(comm):
        with pytest.raises(
            AttributeError, match=rf"no '{name}'; it has rank, size, .*: simdist.collectives.all_reduce\("
        ):
            getattr(comm, name)
        return hasattr(comm, name)

    assert spmd(program, 2) == [False, False]
    assert spmd(program, 1) == [False]
