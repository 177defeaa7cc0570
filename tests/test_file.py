import os
from pathlib import Path

import pytest

from simdist.cluster import read_cluster
from simdist.data.corpus import load
from simdist.errors import DataError
from simdist.file import read_file
from simdist.nn import read_shape
from simdist.parallel.pipeline.text import read
from simdist.trace import Trace
from simdist.training.settings import read_toml

READERS = [read_cluster, read_toml, Trace.load, read, load, read_shape]


@pytest.mark.parametrize("reader", READERS)
def test_what_has_no_end_or_would_be_waited_for_is_refused(reader, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(DataError, match=f"{path} is a device or a pipe; needs a regular file"):
            reader(path)
    with pytest.raises(DataError, match=f"cannot read the .* {tmp_path}: Is a directory"):
        reader(tmp_path)
    with pytest.raises(DataError, match="cannot read the .* /nowhere/x: No such file"):
        reader("/nowhere/x")
    with pytest.raises(DataError, match="cannot read the .*: embedded null byte"):
        reader("a\0b")


def test_the_most_bytes_are_still_read(tmp_path):
    path = tmp_path / "note"
    path.write_bytes(b"\r\n\xff")
    assert read_file(path, "the note", 3) == b"\r\n\xff"
    with pytest.raises(DataError, match="the note .* has 3 bytes; needs at most 2"):
        read_file(path, "the note", 2)
