"""Programs that share their extensions with the ranks that they start."""

import os
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType

import pytest

from simdist.errors import ArgumentError
from simdist.launch.extensions import command_words, load_program, share_program


@pytest.fixture
def program(tmp_path, monkeypatch):
    """program(name, file): this process's main program is of this spec's name, and in this file of a folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SIMDIST_PROGRAM", "")
    monkeypatch.delenv("SIMDIST_PROGRAM")
    monkeypatch.setattr(sys, "path", [*sys.path])

    def make(name, file):
        main = ModuleType("__main__")
        main.__spec__ = name and ModuleSpec(name, None)
        if file:
            path = tmp_path / file
            path.parent.mkdir(exist_ok=True)
            path.write_text("import os, near; os.environ['LOADED'] = f'{__name__} {near.where}'")
            (path.parent / "near.py").write_text("where = 'near'")
            main.__file__ = str(path)
        monkeypatch.setitem(sys.modules, "__main__", main)
        monkeypatch.delitem(sys.modules, "near", raising=False)
        share_program()

    yield make
    os.environ.pop("LOADED", None)
    sys.modules.pop("near", None)


@pytest.mark.parametrize(
    ("name", "file", "words"),
    [
        (None, "own.py", ["python", "own.py"]),
        ("__main__", "folder/__main__.py", ["python", "folder/__main__.py"]),
        ("own.__main__", "own/__main__.py", ["python", "-m", "own"]),
        ("own.part", "own/part.py", ["python", "-m", "own.part"]),
        ("simdist.__main__", None, ["simdist"]),
        (None, "simdist", ["simdist"]),
        (None, None, ["simdist"]),
    ],
)
def test_the_command_that_has_what_it_registers(program, name, file, words):
    program(name, file)
    assert command_words() == words


@pytest.mark.parametrize(("name", "file"), [(None, "own.py"), ("__main__", "folder/__main__.py")])
def test_a_rank_loads_it_under_another_name(program, name, file):
    program(name, file)
    load_program()
    assert os.environ["LOADED"] == "simdist.own near"


def test_a_program_from_a_pipe_is_not_shared(program):
    program(None, None)
    sys.modules["__main__"].__file__ = "<stdin>"
    share_program()
    assert command_words() == ["simdist"]


def test_a_program_that_starts_all_over_again_as_a_rank_loads_it_is_told(program, monkeypatch):
    program(None, "own.py")
    monkeypatch.setitem(sys.modules, "simdist.own", ModuleType("simdist.own"))
    with pytest.raises(ArgumentError, match=r"own.py calls simdist.cli.main\(\) as a rank loads it; needs"):
        share_program()


def test_a_rank_without_a_program_loads_none(program):
    program("simdist.__main__", None)
    load_program()
    assert "LOADED" not in os.environ
