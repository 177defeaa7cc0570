"""Disks for tests: one that loses its power, one that is full, one that tells what was read."""

import errno
import os
from pathlib import Path

from simdist.training.checkpoint import Disk
from simdist.training.checkpoint.disk import DiskFile

__all__ = ["Crash", "CrashingDisk", "FullDisk", "ReadingDisk"]


class Crash(Exception):
    """The machine stopped."""


class CrashingDisk(Disk):
    """Stops the machine at one of the things that are done to it; nothing more can be done afterwards.

    Args:
        at: at which, counted from 0; a write or a removal is then done by half. Never where it is None.

    Attributes:
        done: how many things were done.
    """

    def __init__(self, at=None):
        self.at, self.done = at, 0
        self._lengths = {}  # file -> how much of it is there to stay
        self._open = {}  # descriptor -> file
        self._names = []  # [path, what it was called before, or None] of names that are not there to stay, in order

    def _step(self):
        if self.done == self.at:
            raise Crash
        self.done += 1

    def make_folder(self, path):
        self._step()
        super().make_folder(path)
        self._names.append([path, None])

    def create(self, path):
        self._step()
        fd = super().create(path)
        self._open[fd], self._lengths[path] = path, 0
        self._names.append([path, None])
        return fd

    def write(self, fd, block):
        try:
            self._step()
        except Crash:
            super().write(fd, bytes(block)[: len(block) // 2])
            raise
        super().write(fd, block)

    def sync(self, fd):
        self._step()
        super().sync(fd)
        self._lengths[self._open[fd]] = os.fstat(fd).st_size

    def sync_folder(self, path):
        self._step()
        super().sync_folder(path)
        self._names = [change for change in self._names if change[0].parent != path]

    def rename(self, path, to):
        self._step()
        super().rename(path, to)

        def moved(file):
            return to / file.relative_to(path) if file.is_relative_to(path) else file

        self._lengths = {moved(file): length for file, length in self._lengths.items()}
        self._names = [[moved(file), before] for file, before in self._names] + [[to, path]]

    def remove(self, path):
        try:
            self._step()
        except Crash:
            for file in sorted(path.iterdir())[::2]:
                file.unlink()
            raise
        super().remove(path)

    def lose_power(self):
        """What was not synced is not there: the contents of files, and the names that came or changed."""
        for file, length in self._lengths.items():
            if file.exists():
                os.truncate(file, length)
        for path, before in reversed(self._names):
            if path.exists():
                if before is None:
                    Disk().remove(path)
                else:
                    path.rename(before)


class FullDisk(Disk):
    """Refuses one of the things that are done to it, with this error, and is then as good as any.

    Args:
        at: which, counted from 0; none if it is None.
        code: of the error.
    """

    def __init__(self, at=None, code=errno.ENOSPC):
        self.left, self.code = at, code

    def _step(self, path):
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                self.left = None
                raise OSError(self.code, os.strerror(self.code), str(path))

    def make_folder(self, path):
        self._step(path)
        super().make_folder(path)

    def create(self, path):
        self._step(path)
        return super().create(path)

    def write(self, fd, block):
        self._step(fd)
        super().write(fd, block)

    def sync(self, fd):
        self._step(fd)
        super().sync(fd)

    def sync_folder(self, path):
        self._step(path)
        super().sync_folder(path)

    def rename(self, path, to):
        self._step(path)
        super().rename(path, to)


class ReadingDisk(Disk):
    """Notes what is opened for reading, and which bytes of it are read: (file, offset, length)."""

    def __init__(self):
        self.opened, self.reads = [], []

    def open(self, folder, name):
        self.opened.append(Path(folder) / name)
        return _Noting(super().open(folder, name), name, self.reads)


class _Noting:
    def __init__(self, opening, name, reads):
        self.opening, self.name, self.reads = opening, name, reads

    def __enter__(self):
        file: DiskFile = self.opening.__enter__()
        read = file.read

        def noting(buffer, offset):
            self.reads.append((self.name, offset, len(buffer)))
            return read(buffer, offset)

        file.read = noting
        return file

    def __exit__(self, *error):
        return self.opening.__exit__(*error)
