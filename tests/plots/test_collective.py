"""The picture of a collective, against the states that it is drawn from."""

from io import BytesIO

import pytest
from matplotlib.colors import to_hex
from matplotlib.patches import FancyArrowPatch

from simdist.arrays import partition, reduction
from simdist.collectives.registry import find
from simdist.collectives.watch import watched
from simdist.errors import ArgumentError
from simdist.plots import collective_steps, style
from simdist.trace import Span, Trace


def boxes(ax):
    """(colour of the face or else of the edge, box) of all that a panel's cells are made of."""
    for collection in ax.collections:
        faces, edges = collection.get_facecolor(), collection.get_edgecolor()
        for path in collection.get_paths():
            yield to_hex(faces[0] if len(faces) else edges[0]).upper(), path.get_extents()


def cells(ax, colour):
    """The places (column, rank) of cells of a colour, or with a frame of it."""
    return {
        (round(b.x0 + b.width / 2), round(b.y0 + b.height / 2)) for found, b in boxes(ax) if found == colour.upper()
    }


def stripes(ax):
    """How many stripes a panel has."""
    return sum(found in {style.rank_colour(r).upper() for r in range(8)} for found, _ in boxes(ax))


def arrows(ax):
    """(from, to, column) of all arrows."""
    ends = [p._posA_posB for p in ax.patches if isinstance(p, FancyArrowPatch)]
    return {(round(a[1]), round(b[1]), round(a[0])) for a, b in ends}


def written(ax):
    return {(round(t.get_position()[0]), round(t.get_position()[1], 1)): t.get_text() for t in ax.texts}


@pytest.fixture(scope="module")
def ring():
    return watched("all_reduce", "ring", 4)


@pytest.mark.parametrize("width", [style.COLUMN, style.PAGE])
def test_the_ring_at_a_glance(draw, ring, width):
    picture = draw(collective_steps, ring, width=width)
    titles = [ax.get_title() for ax in picture.axes]
    assert titles == ["start", *(f"after step {k}" for k in range(1, 7))]
    # A chunk is complete first where it ends its way round, then on one rank more in each step.
    assert [len(cells(ax, style.DONE)) for ax in picture.axes] == [0, 0, 0, 4, 8, 12, 16]
    assert cells(picture.axes[3], style.DONE) == {(0, 0), (1, 1), (2, 2), (3, 3)}
    # In each step each rank gets one chunk, from the rank before it.
    for step, ax in enumerate(picture.axes):
        assert cells(ax, style.ACCENT) == {((rank - 1 - step) % 4, rank) for rank in range(4) if step}
        assert arrows(ax) == {(r, (r + 1) % 4, (r - step) % 4) for r in range(4) if step}
    assert [stripes(ax) for ax in picture.axes[:4]] == [16, 20, 28, 24]
    assert picture.title == (
        "all_reduce, ring on 4 ranks: 6 steps; every chunk is complete somewhere after step 3, everywhere after step 6"
    )
    assert picture.key == [*(f"from rank {r}" for r in range(4)), "complete: from all", "just arrived"]


def test_cells_say_whose_contributions_they_hold(draw, ring):
    picture = draw(collective_steps, ring)
    start, second, end = (written(picture.axes[k]) for k in (0, 2, 6))
    assert [start[c, r] for c in range(4) for r in range(4)] == ["0", "1", "2", "3"] * 4
    assert second[1, 0] == "0+2+3"
    assert second[1, 3] == "2+3"
    assert {end[c, r] for c in range(4) for r in range(4)} == {"all"}


def test_what_always_travels_together_is_one_column(draw):
    picture = draw(collective_steps, watched("all_reduce", "recursive_doubling", 4))
    assert [len(cells(ax, style.DONE)) for ax in picture.axes] == [0, 0, 4]
    assert picture.title.endswith("2 steps, then the array is complete everywhere")


def test_pieces_that_are_not_added_up(draw):
    picture = draw(collective_steps, watched("all_reduce", "naive", 4))
    assert written(picture.axes[2])[0, 1] == "0, 1, 3"
    assert [len(cells(ax, style.DONE)) for ax in picture.axes] == [0, 0, 0, 4]


@pytest.mark.slow(but=4)
@pytest.mark.parametrize("width", [style.COLUMN, style.PAGE])
@pytest.mark.parametrize(
    ("operation", "name", "finding"),
    [
        ("all_gather", "bruck", "3 steps, then all ranks hold all of it"),
        ("reduce_scatter", "pairwise", "4 steps, then every chunk is complete on one rank each"),
        ("reduce", "binomial", "3 steps, then the array is complete on rank 0"),
        ("broadcast", "binomial", "3 steps, then all ranks hold all of it"),
        ("scatter", "binomial", "scatter, binomial on 5 ranks: 3 steps"),
        ("gather", "linear", "gather, linear on 5 ranks: 4 steps"),
        ("all_to_all", "pairwise", "4 steps, then every chunk is complete on one rank each"),
        ("all_reduce", "tree", "the array is complete somewhere after step 3, everywhere after step 6"),
    ],
)
def test_findings(draw, operation, name, finding, width):
    assert draw(collective_steps, watched(operation, name, 5), width=width).title.endswith(finding)


def test_one_rank(draw):
    picture = draw(collective_steps, watched("all_reduce", "ring", 1))
    assert [ax.get_title() for ax in picture.axes] == ["start"]


def test_many_steps_are_left_out_and_it_says_so(draw):
    picture = draw(collective_steps, watched("all_reduce", "ring", 9))
    titles = [ax.get_title() for ax in picture.axes]
    assert len(titles) == 16
    assert (titles[0], titles[-1]) == ("start", "after step 16")
    assert picture.note == "16 of 17 states are shown. Colours repeat after 8 ranks."


def test_many_arrows_are_left_out_and_it_says_so(draw):
    picture = draw(collective_steps, watched("all_to_all", "linear", 8))
    assert len(arrows(picture.axes[1])) == 40
    assert picture.note == "16 arrows left out."


def test_chosen_steps_without_arrows(draw, ring):
    picture = draw(collective_steps, ring, steps=[3, 6], arrows=False)
    assert [ax.get_title() for ax in picture.axes] == ["after step 3", "after step 6"]
    assert not any(arrows(ax) for ax in picture.axes)


def test_a_saved_record_gives_the_same_picture(ring, tmp_path):
    ring.save(tmp_path / "t.json")
    pictures = []
    for trace in (ring, Trace.load(tmp_path / "t.json")):
        out = BytesIO()
        collective_steps(trace).savefig(out, format="png")
        pictures.append(out.getvalue())
    assert pictures[0] == pictures[1]


def test_a_step_that_there_is_not(ring):
    with pytest.raises(ArgumentError, match="no step 7; this collective has steps 0 to 6"):
        collective_steps(ring, steps=[7])
    with pytest.raises(ArgumentError, match="steps is empty"):
        collective_steps(ring, steps=[])


def test_a_record_without_states():
    with pytest.raises(ArgumentError, match="no states"):
        collective_steps(Trace([Span(0, "main", "send", 0.0, 1.0)], 1))


@pytest.mark.parametrize(
    ("lost", "finding"),
    [
        ([2], "6 steps, then c2 is complete nowhere"),
        ([0, 2], "6 steps, then c0, c2 are complete nowhere"),
        ([0, 1, 2, 3], "6 steps, then nothing is complete anywhere"),
    ],
)
def test_what_is_complete_nowhere_is_told(lost, finding):
    """A ring that forgets chunks in the end, on all ranks."""

    def forgetful(x, comm):
        find("all_reduce", "ring").run(x, comm, reduction("sum"))
        for chunk in lost:
            x[partition(len(x), comm.size)[chunk]] = 0

    title = collective_steps(watched("all_reduce", forgetful, 4)).get_suptitle()
    assert " ".join(title.split()).endswith(finding)
