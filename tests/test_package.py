"""The package as a whole: it imports without MPI, says what is public, and the README's commands are tested."""

import pkgutil
import re
import subprocess
import sys
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from pydoc import locate

import pytest

import simdist

ROOT = Path(__file__).parent.parent
MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(simdist.__path__, "simdist.")
    if not module.name.startswith("simdist.examples.") and not module.name.endswith("__main__")
)


def python(*arguments):
    """A new interpreter, away from the checkout."""
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=60, cwd="/")


def test_importing_it_needs_no_mpi_and_no_plots():
    code = "import simdist, sys; print({'mpi4py', 'matplotlib', 'cupy'} & set(sys.modules))"
    done = python("-c", code)
    assert done.stdout.strip() == "set()", done.stdout + done.stderr


@pytest.mark.parametrize("name", MODULES)
def test_every_module_says_what_is_public(name, request):
    if name == "simdist.arrays.device" or name.startswith("simdist.arrays.kernels."):  # which import CuPy
        request.getfixturevalue("device")
    module = import_module(name)
    assert module.__doc__
    assert all(hasattr(module, public) for public in getattr(module, "__all__", ()))
    if not hasattr(module, "__path__"):
        assert module.__all__ or name.startswith("simdist.puzzles.")  # whose puzzles are found by their numbers


def test_has_a_version():
    assert version("simdist") == simdist.__version__
    assert re.fullmatch(r"\d+\.\d+\.\d+.*", simdist.__version__)


def test_types_are_for_users_too():
    assert (Path(simdist.__file__).parent / "py.typed").exists()


def test_command_and_module_are_the_same_program():
    module = python("-m", "simdist", "--help")
    command = subprocess.run(
        [Path(sys.executable).with_name("simdist"), "--help"], capture_output=True, text=True, timeout=60
    )
    assert module.returncode == command.returncode == 0, module.stderr + command.stderr
    assert module.stdout == command.stdout
    for verb in ("train", "plan", "predict", "run", "bench", "verify", "doctor", "plot"):
        assert re.search(rf"^\s+{verb}\b", module.stdout, re.MULTILINE), module.stdout


def test_the_readmes_commands_do_all_their_own_set_up():
    commands = re.findall(r"^python3 -m venv .*$", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert commands == [
        "python3 -m venv .venv && .venv/bin/pip install -e '.[mpi]' && .venv/bin/simdist train --ranks 4",
        "python3 -m venv .venv && .venv/bin/pip install -e '.[mpi,test]' && .venv/bin/pytest -n auto",
    ]


def test_whatever_the_readmes_name_is_there():
    names: set[str] = set()
    for file in (ROOT / "README.md", ROOT / "simdist" / "README.md"):
        module = ""  # of the list below its name
        for line in file.read_text().splitlines():
            names |= set(re.findall(r"`@?(simdist(?:\.\w+)+)[`(]", line))
            if line.startswith(("**`", "#")):
                module = line.strip("*`") if line[0] == "*" else ""
            elif module:
                names |= {f"{module}.{name}" for name in re.findall(r"`(\w+(?:\.\w+)*)`", line)}
            for path, part in re.findall(r"\]\((?!http)([^)#]*)#?([^)]*)\)", line):
                target = file.parent / path if path else file
                assert target.exists(), path
                assert not part or part in anchors(target), part
    assert len(names) > 150
    for name in names:
        assert locate(name) is not None, name


def anchors(file):
    """What a code host calls the headings of this file in links."""
    headings = re.findall(r"^#+ (.*)$", file.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
