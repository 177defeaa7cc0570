"""File: writes pictures to files."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from matplotlib.figure import Figure

from simdist.errors import ArgumentError, DataError

__all__ = ["check_folder", "check_format", "save", "writing"]

_FORMATS = (".png", ".svg", ".pdf")


def check_format(path: Path) -> None:
    """Raise ArgumentError unless the name ends in a supported picture format, and is one of `check_folder`."""
    if path.suffix.lower() not in _FORMATS:
        raise ArgumentError(f"cannot write {path}: its name must end in {', '.join(_FORMATS)}")
    check_folder(path)


def check_folder(path: Path) -> None:
    """Raise ArgumentError unless it is the name of a file, new or not, in a folder that there is."""
    try:
        possible = not path.is_dir() and path.parent.is_dir()
    except OSError as error:
        raise ArgumentError(f"cannot write {path}: {error.strerror}") from None
    if not possible:
        raise ArgumentError(f"cannot write {path}: needs the name of a file in an existing folder")


def save(figure: Figure, path: Path) -> None:
    """Write a picture; errors are those of `writing`."""
    with writing(path):
        figure.savefig(path)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Around what writes a file.

    Raises:
        DataError: it cannot be written; a file that was not there before is removed.
    """
    new = not path.exists()
    try:
        yield
    except OSError as error:
        if new:
            with suppress(OSError):  # a folder that may not be changed, which the first error is about
                path.unlink(missing_ok=True)
        raise DataError(f"cannot write {path}: {error.strerror or error}") from error
