"""Which modules travel with their code: those that another process with the same path would not find."""

import linecache
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from types import ModuleType, SimpleNamespace

import cloudpickle
import pytest

from simdist.launch.pickling import _strangers, packed, unpacked


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder on the path, and one that is not."""
    for name in ("on", "off"):
        (tmp_path / name).mkdir()
    monkeypatch.syspath_prepend(str(tmp_path / "on"))
    return tmp_path


@pytest.mark.parametrize(
    ("name", "file", "stranger"),
    [
        ("lone", "on/lone.py", False),
        ("pack", "on/pack/__init__.py", False),
        ("pack.sub", "on/pack/sub.py", False),
        ("lone", "on/other.py", True),
        ("lone", "on/deep/lone.py", True),
        ("lone", "off/lone.py", True),
        ("pack.sub", "off/pack/sub.py", True),
        ("lone", "off/lone.so", False),
    ],
)
def test_who_is_a_stranger(place, monkeypatch, name, file, stranger):
    module = ModuleType(name)
    module.__file__ = str(place / file)
    monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setitem(sys.modules, "alias", module)  # found by another name, which is not its own
    assert _strangers().count(module) == stranger


@pytest.mark.parametrize("same", [True, False])
def test_what_an_editable_install_finds_is_no_stranger(place, monkeypatch, same):
    module = ModuleType("lone")
    module.__file__ = str(place / "off" / "lone.py")
    origin = module.__file__ if same else str(place / "elsewhere" / "lone.py")
    finder = SimpleNamespace(find_spec=lambda name, path: SimpleNamespace(origin=origin) if name == "lone" else None)
    monkeypatch.setitem(sys.modules, "lone", module)
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, object(), finder])
    assert (module in _strangers()) != same


def test_what_only_looks_like_a_module_is_no_stranger(place, monkeypatch):
    lookalike = SimpleNamespace(__name__="lone", __file__=str(place / "off" / "lone.py"))
    monkeypatch.setitem(sys.modules, "lone", lookalike)
    assert lookalike not in _strangers()


def test_what_a_stranger_defines_travels(place, monkeypatch):
    module = ModuleType("stranger")
    module.__file__ = str(place / "off" / "stranger.py")
    exec("def answer():\n    return 42\n", vars(module))
    monkeypatch.setitem(sys.modules, "stranger", module)
    data = packed(module.answer)
    assert "stranger" not in cloudpickle.list_registry_pickle_by_value()
    monkeypatch.delitem(sys.modules, "stranger")
    assert unpacked(data)() == 42


def test_threads_that_pack_at_once_do_not_disturb_each_other(place, monkeypatch):
    module = ModuleType("stranger")
    module.__file__ = str(place / "off" / "stranger.py")
    exec("def answer():\n    return 42\n", vars(module))
    monkeypatch.setitem(sys.modules, "stranger", module)
    begun, joined, ended = Event(), Event(), Event()

    class Step:
        """While it is packed, one event happens and another is waited for."""

        def __init__(self, happens, awaited):
            self.happens, self.awaited = happens, awaited

        def __reduce__(self):
            self.happens.set()
            self.awaited.wait(0.5)  # for nothing, as long as the other thread is kept out
            return int, ()

    def first():
        data = packed(Step(begun, joined))
        ended.set()
        return data

    def second():
        begun.wait()
        return packed((Step(joined, ended), module.answer))

    with ThreadPoolExecutor(2) as threads:
        threads.submit(first)
        data = threads.submit(second)
    monkeypatch.delitem(sys.modules, "stranger")
    assert unpacked(data.result())[1]() == 42


def test_simdist_itself_is_no_stranger_wherever_it_was_imported_from(monkeypatch):
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if "-packages" in entry])
    monkeypatch.setattr(sys, "meta_path", [])
    assert not [module for module in _strangers() if module.__name__.partition(".")[0] == "simdist"]


def test_the_lines_of_a_cell_travel_and_replace_none_that_are_known(monkeypatch):
    lines, names = ["def answer():\n", "    return 42\n"], {"__name__": "__main__"}
    exec(compile("".join(lines), "/a/cell", "exec"), names)
    monkeypatch.setitem(linecache.cache, "/a/cell", (0, None, lines, "/a/cell"))
    data = packed(names["answer"])
    for known in ([], ["its own\n"]):
        monkeypatch.delitem(linecache.cache, "/a/cell")
        if known:
            monkeypatch.setitem(linecache.cache, "/a/cell", (0, None, known, "/a/cell"))
        assert unpacked(data).__code__.co_filename == "/a/cell"
        assert linecache.getlines("/a/cell") == (known or lines)
