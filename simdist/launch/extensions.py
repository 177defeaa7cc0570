"""Extensions: passes those of a program, such as an algorithm, on to the ranks that it starts."""

import os
import runpy
import sys
from pathlib import Path

from simdist.errors import ArgumentError

__all__ = ["command_words", "load_program", "share_program"]

_PROGRAM = "SIMDIST_PROGRAM"
_NAME = "simdist.own"
_SIMDIST = ("simdist.__main__", "simdist")  # simdist itself, as a module and as a command


def share_program() -> None:
    """Let the ranks that this process starts load its main program first, so that they know what it registers.

    They load it under another name, so that code guarded by `if __name__ == "__main__":` does not run there.

    Raises:
        ArgumentError: a rank is loading it, and it calls this nevertheless.
    """
    if _NAME in sys.modules:
        raise ArgumentError(
            f"{os.environ[_PROGRAM]} calls simdist.cli.main() as a rank loads it; "
            'needs `if __name__ == "__main__":` before that'
        )
    main = sys.modules["__main__"]
    spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
    if spec is not None and spec.name != "__main__":  # as that of a folder is, which is found as a file
        program = spec.name
    elif file is not None and Path(file).is_file():  # not a program read from a pipe
        program = str(Path(file).resolve())
    else:
        return
    # On a rank, which is simdist, the variable stays as it is.
    if program not in _SIMDIST and Path(program).name not in _SIMDIST:
        os.environ[_PROGRAM] = program


def command_words() -> list[str]:
    """The command that has the extensions of this process: `simdist`, or the user's own program."""
    program = os.environ.get(_PROGRAM)
    if program is None:
        return ["simdist"]
    if Path(program).is_absolute():
        return ["python", os.path.relpath(program)]
    return ["python", "-m", program.removesuffix(".__main__")]


def load_program() -> None:
    """On a rank: load the program that shared itself, if there is one."""
    program = os.environ.get(_PROGRAM)
    if program is None:
        return
    if Path(program).is_absolute():
        sys.path.append(str(Path(program).parent))
        runpy.run_path(program, run_name=_NAME)
    else:
        runpy.run_module(program, run_name=_NAME, alter_sys=True)
