"""Nodes: which ranks share a machine, and the offsets between their clocks.

The communicators here are mpi4py's.
"""

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from simdist import environment
from simdist.comm.board import Board
from simdist.comm.watchdog import Watchdog
from simdist.errors import WorldUnavailable

__all__ = ["common_zero", "node_indices", "open_board", "pretended"]


def node_indices(world: Any, neighbours: Any) -> list[int]:
    """The node of every rank: nodes are numbered by their lowest rank.

    Args:
        world: the communicator of all ranks.
        neighbours: the communicator of the ranks that share memory with this one.
    """
    lowest = np.array([world.Get_rank()])
    neighbours.Bcast(lowest)
    every = np.empty(world.Get_size(), lowest.dtype)
    world.Allgather(lowest, every)
    number = {rank: i for i, rank in enumerate(sorted(set(every.tolist())))}
    return [number[rank] for rank in every.tolist()]


def pretended(nodes: Sequence[int]) -> Sequence[int]:
    """The simulated nodes of SIMDIST_RANKS_PER_NODE; the real ones if it is not set."""
    ranks_per_node = environment.pretended_ranks_per_node()
    return nodes if ranks_per_node is None else [rank // ranks_per_node for rank in range(len(nodes))]


def open_board(watchdog: Watchdog, neighbours: Any) -> None:
    """Make a board for the ranks of a node, unless their launcher has. Its file is deleted when this returns.

    Raises:
        WorldUnavailable: on all ranks of the node: there is no place for the file.
    """
    if watchdog.board is not None:
        return
    note = np.zeros(4096, np.uint8)
    if neighbours.Get_rank() == 0:
        try:
            told = os.fsencode(Board.temporary(neighbours.Get_size()))
        except (OSError, WorldUnavailable) as error:
            told = f"!{error}".encode(errors="replace")[: len(note)]
        note[: len(told)] = np.frombuffer(told, np.uint8)
    neighbours.Bcast(note)
    told = note.tobytes().rstrip(b"\0")
    if told.startswith(b"!"):  # no path does
        raise WorldUnavailable(told[1:].decode(errors="replace"))
    file = Path(os.fsdecode(told))
    board = Board(file, neighbours.Get_rank())
    board.take(watchdog.rank)
    watchdog.board = board
    neighbours.Barrier()
    if neighbours.Get_rank() == 0:
        file.unlink()
        file.parent.rmdir()


def common_zero(
    world: Any, neighbours: Any, nodes: Sequence[int], clock: Callable[[], float] = time.perf_counter
) -> float:
    """This rank's clock reading at the zero of the job's clock, one moment that is common to all ranks.

    The ranks of a node share a clock. The lowest rank of each other node asks rank 0 for the time and uses the answer
    with the shortest round trip: its error is at most half of that.
    """
    rank = world.Get_rank()
    ahead_s = np.zeros(1)
    for leader in sorted({nodes.index(node) for node in nodes} - {0}):
        if rank == 0:
            _tell_time(world, leader, clock)
        elif rank == leader:
            ahead_s[0] = _ask_time(world, clock)
    neighbours.Bcast(ahead_s)
    zero_s = np.array([clock()])
    world.Bcast(zero_s)
    return float(zero_s[0] + ahead_s[0])


_ROUNDS = 32


def _tell_time(world: Any, asker: int, clock: Callable[[], float]) -> None:
    note = np.zeros(1)
    for _ in range(_ROUNDS):
        world.Recv(note, asker)
        note[0] = clock()
        world.Send(note, asker)


def _ask_time(world: Any, clock: Callable[[], float]) -> float:
    """How far this clock is ahead of that of rank 0."""
    note = np.zeros(1)
    best_s, ahead_s = float("inf"), 0.0
    for _ in range(_ROUNDS):
        asked_s = clock()
        world.Send(note, 0)
        world.Recv(note, 0)
        back_s = clock()
        if back_s - asked_s < best_s:
            best_s, ahead_s = back_s - asked_s, (asked_s + back_s) / 2 - float(note[0])
    return ahead_s
