"""Rank process: what mpirun runs once per rank, on behalf of `sd.run` and `simdist run`.

`python -m simdist.launch.rank_process` performs the task in the job's folder;
`python -m simdist.launch.rank_process script.py …` or `… -m module …` runs a script.
"""

import io
import json
import os
import runpy
import signal
import sys
import time
from pathlib import Path
from threading import get_ident
from typing import Any

import numpy as np

from simdist.comm.guard import BOARD, Guard, guard
from simdist.comm.line import traceback_of
from simdist.comm.world import world
from simdist.errors import RankFailed
from simdist.launch.extensions import load_program
from simdist.launch.mpirun import DEAF
from simdist.launch.pickling import packed, unpacked

__all__ = ["main"]


def main(argv: list[str]) -> None:
    """Run as one rank: of a script, if one is given, and of the folder's task otherwise."""
    if DEAF in os.environ:
        signal.signal(int(os.environ[DEAF]), signal.SIG_IGN)
    keeper = guard()
    if argv:
        run_script(keeper, argv)
    else:
        Task(keeper, Path(os.environ[BOARD]).parent).perform()
    keeper.note_exit(0)  # discard an exit that did not end the program


def run_script(keeper: Guard, argv: list[str]) -> None:
    """Run a script or a module as `python` would, monitored from its first line on."""
    try:
        load_program()
        if argv[0] == "-m":
            sys.argv = argv[1:]
            runpy.run_module(argv[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv = argv
            if not sys.flags.safe_path:
                sys.path[0] = str(Path(argv[0]).resolve().parent)  # in place of this folder, where modules are
            runpy.run_path(argv[0], run_name="__main__")
    except SystemExit as leaving:
        keeper.note_exit(leaving.code)
        raise


class Task:
    """A program to be called with the communicator, from and to files in the job's private folder.

    What is pickled here was written by the same user, in a folder that only this user can enter.
    """

    def __init__(self, keeper: Guard, folder: Path) -> None:
        self._keeper = keeper
        self._rank = keeper.watchdog.rank
        self._folder = folder
        keeper.quiet = True  # the process that started the job shows what went wrong, and ends it
        keeper.patience_s = 3.0
        keeper.watchdog.tell = self.leave_failure

    def perform(self) -> None:
        """Do it and leave the result, or the failure."""
        self._write_to_files()
        try:
            known = set(sys.path)
            sys.path += [p for p in json.loads((self._folder / "path.json").read_text()) if p not in known]
            load_program()
            facts, result = self._call()
            self._leave("result.pickle", result)
            self._leave("facts.json", json.dumps(facts, default=np.generic.item).encode())  # a tag may be NumPy's
        except SystemExit as error:
            ranks = self._keeper.watchdog.size
            left = RankFailed(f"rank {self._rank} of {ranks} called sys.exit({error.code!r})")
            self._fail(left.with_traceback(error.__traceback__))
        except BaseException as error:
            self._fail(error)

    def _call(self) -> tuple[dict[str, Any], bytes]:
        task = unpacked((self._folder / "task.pickle").read_bytes())
        comm: Any = world()
        comm.recorder.on = task["record"]
        comm.check = task["check"]
        comm.cluster = task["cluster"] or comm.cluster
        comm.exchange("ready")
        start_s = comm.clock()
        result = task["program"](comm, *task["args"])
        for drain in self._keeper.drains:  # work on its streams is part of the program, and may fail
            drain()
        facts = {"start_s": start_s, "end_s": comm.clock(), "rows": comm.recorder.rows}
        return facts, packed(result)

    def _write_to_files(self) -> None:
        """Redirect this rank's output, also that of libraries, to files that the parent forwards."""
        for stream, name in ((sys.stdout, "out"), (sys.stderr, "err")):
            stream.flush()
            file = os.open(self._folder / f"rank-{self._rank}.{name}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            os.dup2(file, stream.fileno())
            os.close(file)
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(line_buffering=True)

    # -- failing ---------------------------------------------------------------------------------------

    def _fail(self, error: BaseException) -> None:
        self.leave_failure(error, traceback_of(error))
        self._keeper.fail(error)

    def leave_failure(self, error: BaseException, trace: str = "") -> None:
        """Leave an error for the parent to raise."""
        try:
            summary = f"{type(error).__name__}: {error}"
        except Exception:  # of its own __str__
            summary = f"{type(error).__name__}, whose message cannot be shown"
        try:
            self._leave("failure.pickle", packed(error))
        except Exception as problem:  # the parent uses the text instead
            summary += f" (which cannot be pickled: {problem})"
        failure = {"rank": self._rank, "at_s": time.monotonic(), "summary": summary, "trace": trace}
        self._leave("failure.json", json.dumps(failure).encode())

    def _leave(self, name: str, data: bytes) -> None:
        """Write a file atomically: it is either absent or complete."""
        path = self._folder / f"rank-{self._rank}.{name}"
        part = path.with_suffix(f".{get_ident()}.part")  # the watchdog may leave something at the same time
        try:
            part.write_bytes(data)
        except OSError:  # for example a full disk: free space for the report of the failure
            part.unlink(missing_ok=True)
            raise
        part.rename(path)


if __name__ == "__main__":
    main(sys.argv[1:])
