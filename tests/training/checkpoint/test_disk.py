"""What a disk asks of the operating system: what is synced, and that no descriptor stays open."""

import os
from contextlib import suppress
from pathlib import Path

import pytest

from simdist.training.checkpoint.disk import DISK


@pytest.fixture(autouse=True)
def nothing_stays_open(tmp_path):
    yield
    for fd in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):
            assert not fd.readlink().is_relative_to(tmp_path)


@pytest.fixture
def synced(monkeypatch):
    """The paths that are synced."""
    paths = []
    monkeypatch.setattr(os, "fsync", lambda fd: paths.append(Path(f"/proc/self/fd/{fd}").readlink()))
    return paths


def test_each_new_folder_is_synced_in_its_parent_and_a_file_by_its_end(tmp_path, synced):
    deep = tmp_path / "a" / "b"
    DISK.make_folders(deep)
    DISK.make_folders(deep)
    assert synced == [tmp_path, tmp_path / "a"]
    with DISK.new_file(deep / "file") as fd:
        DISK.write(fd, b"words")
        assert len(synced) == 2
    DISK.sync_folder(deep)
    assert synced[2:] == [deep / "file", deep]


def test_a_file_that_was_not_written_to_its_end_is_closed_and_not_synced(tmp_path, synced):
    with pytest.raises(ZeroDivisionError), DISK.new_file(tmp_path / "file"):
        raise ZeroDivisionError
    assert not synced


def test_only_plain_files_are_opened(tmp_path):
    (tmp_path / "file").write_bytes(b"words")
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "here").symlink_to(".")
    os.mkfifo(tmp_path / "pipe")
    for folder, name in (("", "link"), ("here", "file"), ("", "here"), ("", "pipe"), ("", "none"), ("none", "file")):
        with pytest.raises(OSError), DISK.open(tmp_path / folder, name):  # noqa: PT011
            pass
    with DISK.open(tmp_path, "file") as file:
        found = memoryview(bytearray(5))
        assert file.num_bytes == 5
        assert [file.read(found[:n], offset) for n, offset in ((5, 0), (3, 3), (1, 9))] == [True, False, False]
    assert found == b"dsrds"
