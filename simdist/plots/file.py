"""File: writes pictures to files."""

from pathlib import Path

from matplotlib.figure import Figure

from simdist.errors import ArgumentError, DataError

__all__ = ["check_format", "save"]

_FORMATS = (".png", ".svg", ".pdf")


def check_format(path: Path) -> None:
    """Raise ArgumentError unless the name ends in a supported picture format."""
    if path.suffix.lower() not in _FORMATS:
        raise ArgumentError(f"cannot write {path}: its name must end in {', '.join(_FORMATS)}")


def save(figure: Figure, path: Path) -> None:
    """Write a picture; if that fails, remove a file that it created, and raise DataError."""
    new = not path.exists()
    try:
        figure.savefig(path)
    except OSError as error:
        if new:
            path.unlink(missing_ok=True)
        raise DataError(f"cannot write {path}: {error.strerror or error}") from error
