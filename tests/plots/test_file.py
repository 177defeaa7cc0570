import errno
import os

import pytest
from matplotlib.figure import Figure

from simdist.errors import ArgumentError, DataError
from simdist.plots.file import check_format, save, writing


def test_a_picture_is_written_where_it_can_be(tmp_path):
    path = tmp_path / "x.PNG"
    check_format(path)
    save(Figure(), path)
    assert path.stat().st_size
    with pytest.raises(DataError, match="cannot write .*nowhere/x.png: No such file"):
        save(Figure(), tmp_path / "nowhere" / "x.png")


@pytest.mark.parametrize("there", [False, True])
def test_half_of_a_file_goes_unless_there_was_one_before(tmp_path, there):
    def half():
        path.write_text("half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    path = tmp_path / "x"
    if there:
        path.write_text("before")
    with pytest.raises(DataError, match="cannot write .*x: No space left on device"), writing(path):
        half()
    assert path.exists() == there


def test_a_folder_that_may_not_be_changed(tmp_path, monkeypatch):
    def no(path, missing_ok=False):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr("pathlib.Path.unlink", no)
    with pytest.raises(DataError, match="cannot write .*x: Read-only file system"), writing(tmp_path / "x"):
        no(tmp_path / "x")


@pytest.mark.parametrize("name", ["x.gif", "x", "png", ""])
def test_a_format_that_is_none(tmp_path, name):
    with pytest.raises(ArgumentError, match="its name must end in .png, .svg, .pdf"):
        check_format(tmp_path / name)
