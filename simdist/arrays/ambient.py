"""Ambient: values that are set around a block and found inside it, separately for each rank and stream."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

__all__ = ["ambient"]

T = TypeVar("T")


@contextmanager
def ambient(variable: ContextVar[Any], value: T) -> Iterator[T]:
    """Set a context variable inside this block, which gets the value."""
    token = variable.set(value)
    try:
        yield value
    finally:
        variable.reset(token)
