"""Bindings: mpi4py's, which only this file imports. Importing it loads MPI; `join` starts it, and the guard ends it."""

from importlib import import_module
from typing import Any

import mpi4py

__all__ = ["MPI"]

mpi4py.rc(initialize=False, finalize=False)  # before MPI is loaded
MPI: Any = import_module("mpi4py.MPI")
