"""File: the contents of a file that somebody names."""

from math import inf
from pathlib import Path
from stat import S_ISDIR, S_ISREG

from simdist.errors import DataError

__all__ = ["read_file"]


def read_file(path: str | Path, what: str, most_bytes: float = inf) -> bytes:
    """All bytes of a regular file; a pipe's would be waited for, and those of /dev/zero have no end.

    Args:
        what: the kind of file, for error messages, such as "the config file".
        most_bytes: the most that such a file may have.

    Raises:
        DataError: it cannot be read, is not a regular file, or has more bytes.
    """
    path = Path(path)
    try:
        found = path.stat()
        regular = S_ISREG(found.st_mode) or S_ISDIR(found.st_mode)  # reading a folder says what it is
        if regular and found.st_size <= most_bytes:
            return path.read_bytes()
    except (OSError, ValueError) as error:  # such as a name with a zero byte
        raise DataError(f"cannot read {what} {path}: {getattr(error, 'strerror', None) or error}") from error
    if not regular:
        raise DataError(f"{what} {path} is a device or a pipe; needs a regular file")
    raise DataError(f"{what} {path} has {found.st_size:,} bytes; needs at most {most_bytes:,}")
