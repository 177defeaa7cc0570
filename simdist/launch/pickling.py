"""Pickling: a program and its arguments as bytes, for processes that cannot import all modules of this one.

The bytes are written to a file in a private folder, read there by the same user, and never sent.
"""

import io
import linecache
import sys
from collections import ChainMap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import RLock
from types import CodeType, ModuleType
from typing import Any

import cloudpickle

from simdist.errors import ArgumentError

__all__ = ["packed", "unpacked"]


def packed(content: Any) -> bytes:
    """An object, pickled: functions of a notebook, a script or a test are pickled with their code.

    Raises:
        ArgumentError: something in it cannot be pickled, such as an open file.
    """
    file = io.BytesIO()
    with _REGISTRY, _by_value(_strangers()):
        try:
            _Pickler(file).dump(content)
        except Exception as error:
            raise ArgumentError(f"this cannot travel to another process: {error}") from error
    return file.getvalue()


def unpacked(data: bytes) -> Any:
    """The object that was packed."""
    return cloudpickle.loads(data)


def _code(fields: tuple[Any, ...], file: str, lines: list[str]) -> CodeType:
    """A code object with its original file name, and the lines of a file that other processes cannot read."""
    if lines and file not in linecache.cache:
        linecache.cache[file] = (sum(map(len, lines)), None, lines, file)
    return CodeType(*fields).replace(co_filename=file)


def _reduced(code: CodeType) -> tuple[Callable[..., CodeType], tuple[Any, ...]]:
    """Like cloudpickle's own reducer, which drops the file name since 3.1.3: then tracebacks show no lines."""
    _, fields = cloudpickle.Pickler.dispatch_table[CodeType](code)
    file = code.co_filename
    return _code, (fields, file, [] if Path(file).exists() else linecache.getlines(file))


# A pickler reads the table of its class on creation, so changing it takes a subclass.
_Pickler = type(
    "_Pickler",
    (cloudpickle.Pickler,),
    {"dispatch_table": ChainMap({CodeType: _reduced}, cloudpickle.Pickler.dispatch_table)},
)


_REGISTRY = RLock()  # of cloudpickle, which all threads share


@contextmanager
def _by_value(modules: list[ModuleType]) -> Iterator[None]:
    for module in modules:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in modules:
            cloudpickle.unregister_pickle_by_value(module)


def _strangers() -> list[ModuleType]:
    """The modules that another process with the same path would not find under their names."""
    kept = cloudpickle.list_registry_pickle_by_value()  # registered by the user, and so not unregistered here
    roots = {str(Path(entry).absolute()) for entry in sys.path} | {str(Path(__file__).parents[2])}
    return [m for name, m in sys.modules.copy().items() if name not in kept and _is_strangers(name, m, roots)]


def _is_strangers(name: str, module: Any, roots: set[str]) -> bool:
    file = getattr(module, "__file__", None)
    if (
        name == "__main__"
        or not isinstance(module, ModuleType)
        or not str(file).endswith(".py")
        or module.__name__ != name
    ):
        return False
    stem = name.replace(".", "/")
    if {str(file).removesuffix(tail) for tail in (f"/{stem}.py", f"/{stem}/__init__.py")} & roots:
        return False
    return not _found(name.partition(".")[0])


def _found(package: str) -> bool:
    """Whether a finder of this process finds the package again, such as that of an editable install."""
    for finder in sys.meta_path:
        spec = finder.find_spec(package, None) if hasattr(finder, "find_spec") else None
        if spec is not None:
            loaded = sys.modules.get(package)
            return spec.origin == getattr(loaded, "__file__", None)
    return False
