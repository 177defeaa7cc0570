"""Own: what a program adds to simdist, an algorithm say, for the ranks that it starts to have it, too."""

import os
import runpy
import sys
from pathlib import Path

__all__ = ["load_program", "share_program"]

_PROGRAM = "SIMDIST_PROGRAM"
_NAME = "simdist.own"


def share_program() -> None:
    """Let the ranks that this process starts begin with its main program: what that registers they know then.

    They load it under another name, so that it does nothing there that `if __name__ == "__main__":` guards.
    """
    main = sys.modules["__main__"]
    spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
    if spec is not None:
        os.environ[_PROGRAM] = spec.name
    elif file is not None and Path(file).is_file():  # and no program read from a pipe
        os.environ[_PROGRAM] = str(Path(file).resolve())


def load_program() -> None:
    """On such a rank: load it, if there is one."""
    program = os.environ.get(_PROGRAM)
    if program is None:
        return
    if Path(program).is_absolute():
        sys.path.append(str(Path(program).parent))
        runpy.run_path(program, run_name=_NAME)
    else:
        runpy.run_module(program, run_name=_NAME, alter_sys=True)
