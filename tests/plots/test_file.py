import pytest
from matplotlib.figure import Figure

from simdist.errors import ArgumentError, DataError
from simdist.plots.file import check_format, save


def test_a_picture_is_written_where_it_can_be(tmp_path):
    path = tmp_path / "x.PNG"
    check_format(path)
    save(Figure(), path)
    assert path.stat().st_size
    with pytest.raises(DataError, match="cannot write .*nowhere/x.png: No such file"):
        save(Figure(), tmp_path / "nowhere" / "x.png")


@pytest.mark.parametrize("name", ["x.gif", "x", "png", ""])
def test_a_format_that_is_none(tmp_path, name):
    with pytest.raises(ArgumentError, match="its name must end in .png, .svg, .pdf"):
        check_format(tmp_path / name)
