"""Steps: the checkpoints in a folder, by the number of steps that were done.

    step-100          a checkpoint
    step-200          another
    step-300.tmp      one that is being written or removed, or what a crash left of one
    step-200.old      the former step-200 while it is rewritten; it counts while there is no step-200

Each renaming is atomic, so that at any moment a step is either complete or absent.
"""

import re
from pathlib import Path

from simdist.errors import CheckpointError
from simdist.training.checkpoint.disk import DISK, Disk

__all__ = ["begin", "commit", "draft_of", "folder_of", "latest", "prune", "step_of", "steps", "tidy"]

_NAME = re.compile(r"step-(0|[1-9][0-9]{0,17})(\.old)?")
_LEFTOVER = re.compile(r"step-[0-9]+\.tmp")


def steps(root: str | Path, disk: Disk = DISK) -> list[int]:
    """The steps that have checkpoints, from first to last; none if there is no such folder.

    Raises:
        CheckpointError: the folder cannot be read.
    """
    try:
        names = disk.folders(Path(root))
    except OSError as error:
        raise CheckpointError(f"cannot look into {root}: {error.strerror or error}") from error
    return sorted({int(match[1]) for match in map(_NAME.fullmatch, names) if match})


def latest(root: str | Path, disk: Disk = DISK) -> int | None:
    """The last step that has a checkpoint; None if there is none."""
    return max(steps(root, disk), default=None)


def folder_of(root: str | Path, step: int | None = None, disk: Disk = DISK) -> Path:
    """Where the checkpoint of this step is, or the latest if no step is given.

    Raises:
        CheckpointError: there is none.
    """
    root, there = Path(root), steps(root, disk)
    chosen = max(there, default=None) if step is None else step
    if chosen not in there:
        listing = f"; there are those of steps {', '.join(map(str, there[-10:]))}" if there else ""
        which = f"of step {step} " if step is not None and there else ""
        raise CheckpointError(f"no checkpoint {which}in {root}{listing}")
    path = root / f"step-{chosen}"
    return path if path.name in disk.folders(root) else path.with_name(f"{path.name}.old")


def draft_of(root: Path, step: int) -> Path:
    """Where the checkpoint of this step is while it is being written."""
    return root / f"step-{step}.tmp"


def step_of(folder: Path) -> int:
    """The step in the name of a folder from `folder_of`."""
    return int(folder.name.removesuffix(".old").removeprefix("step-"))


def begin(root: Path, step: int, disk: Disk) -> None:
    """Make the folder that the checkpoint of this step is to be written in."""
    disk.make_folders(root)
    tidy(root, disk)
    disk.make_folder(draft_of(root, step))


def commit(root: Path, step: int, disk: Disk) -> None:
    """Give the folder, now complete, its name: from then on it counts. It replaces one of the same step."""
    new, path = draft_of(root, step), root / f"step-{step}"
    old = path.with_name(f"{path.name}.old") if path.name in disk.folders(root) else None
    disk.sync_folder(new)
    if old:
        disk.rename(path, old)
        disk.sync_folder(root)
    disk.rename(new, path)
    disk.sync_folder(root)
    if old:
        _discard(old, step, disk)


def prune(root: Path, step: int, keep: int, disk: Disk) -> None:
    """Remove the oldest checkpoints until there are `keep`, that of `step` among them."""
    others = [other for other in steps(root, disk) if other != step]
    for other in others[: max(0, len(others) + 1 - keep)]:
        _discard(root / f"step-{other}", other, disk)


def tidy(root: Path, disk: Disk) -> None:
    """Remove what a crash or a failure left, and restore a checkpoint whose replacement was not completed."""
    names = disk.folders(root)
    for name in names:
        if _LEFTOVER.fullmatch(name):
            disk.remove(root / name)
    for match in filter(None, map(_NAME.fullmatch, names)):
        if match[2]:
            name = f"step-{match[1]}"
            if name in names:
                _discard(root / match[0], int(match[1]), disk)
            else:
                disk.rename(root / match[0], root / name)
                disk.sync_folder(root)


def _discard(path: Path, step: int, disk: Disk) -> None:
    """Remove a checkpoint: first its name, then its files, so that half of one never counts."""
    doomed = draft_of(path.parent, step)
    disk.rename(path, doomed)
    disk.sync_folder(path.parent)
    disk.remove(doomed)
