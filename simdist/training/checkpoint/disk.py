"""Disk: the few file operations of checkpoints, each of which may fail."""

import errno
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["DISK", "Disk", "DiskFile"]

Buffer = bytes | memoryview


class DiskFile:
    """A file open for reading: never the target of a link."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self.num_bytes = os.fstat(fd).st_size

    def read(self, buffer: memoryview, offset: int) -> bool:
        """Fill the buffer, of bytes, from this place in the file; false where the file ends before."""
        while buffer:
            count = os.preadv(self._fd, [buffer], offset)
            if count == 0:
                return False
            buffer, offset = buffer[count:], offset + count
        return True


class Disk:
    """Files as a checkpoint uses them; every method raises OSError where it fails.

    Only this user can read what is written: folders have mode 0700, files 0600.
    """

    # -- writing --------------------------------------------------------------------------------------

    def make_folder(self, path: Path) -> None:
        """Make a folder that is not there yet."""
        path.mkdir(0o700)

    def create(self, path: Path) -> int:
        """Make a file that is not there yet, and open it for writing."""
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)

    def write(self, fd: int, block: Buffer) -> None:
        """Write all of a block."""
        rest = memoryview(block)
        while rest:
            rest = rest[os.write(fd, rest) :]

    def sync(self, fd: int) -> None:
        """Return when what was written survives a crash."""
        os.fsync(fd)

    def sync_folder(self, path: Path) -> None:
        """Return when the names in a folder survive a crash."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def rename(self, path: Path, to: Path) -> None:
        """Give a file or folder another name, atomically."""
        path.rename(to)

    def remove(self, path: Path) -> None:
        """Remove a file, a link (not its target) or a whole folder."""
        if stat.S_ISDIR(path.lstat().st_mode):
            shutil.rmtree(path)
        else:
            path.unlink()

    @contextmanager
    def new_file(self, path: Path) -> Iterator[int]:
        """Make a file, written in this block and synced at its end."""
        fd = self.create(path)
        try:
            yield fd
            self.sync(fd)
        finally:
            os.close(fd)

    def make_folders(self, path: Path) -> None:
        """Make a folder and its missing parents, and sync them."""
        if not path.is_dir():
            self.make_folders(path.parent)
            self.make_folder(path)
            self.sync_folder(path.parent)

    # -- reading --------------------------------------------------------------------------------------

    def folders(self, path: Path) -> list[str]:
        """The names of the folders in a folder, links left out; of one that is not there, none."""
        try:
            with os.scandir(path) as entries:
                return [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
        except FileNotFoundError:
            return []

    @contextmanager
    def open(self, folder: Path, name: str) -> Iterator[DiskFile]:
        """A file in a folder for reading, neither of which may be a link.

        Raises:
            OSError: also where it is no plain file.
        """
        no_link = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
        folder_fd = os.open(folder, no_link | os.O_DIRECTORY)
        try:
            fd = os.open(name, no_link | os.O_NONBLOCK, dir_fd=folder_fd)  # a pipe's open would wait for a writer
        finally:
            os.close(folder_fd)
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise OSError(errno.ENXIO, "not a plain file", name)
            yield DiskFile(fd)
        finally:
            os.close(fd)


DISK = Disk()
"""This machine's."""
