"""What every test can ask for: `spmd`, which runs a program on ranks, virtual or real (see harness.py).

Many tests have dozens of cases. Of one that is marked `slow(but=K)` K cases run, the same ones every time, and
`pytest -m slow` runs the others.

Under mpirun the tests that take `spmd` run, on all ranks together; rank 0 reports for all. Real ranks cost more than
virtual ones: `--cases K` runs K of the cases of each test, except where it is marked `every_case`.
"""

import gc
import hashlib
import io
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import gettempdir
from typing import Any

import pytest
from device import library
from harness import RealRanks, VirtualRanks, xp
from hypothesis import settings

import simdist as sd
from simdist.comm.device import PATHS
from simdist.launch import in_job

_RANKS = pytest.StashKey[VirtualRanks | RealRanks]()
_MODULES = pytest.StashKey[int]()

settings.register_profile("untimed", deadline=None)  # an example may take as long as a busy machine makes it
settings.load_profile("untimed")


def pytest_addoption(parser: pytest.Parser) -> None:
    """See above."""
    parser.addoption("--cases", type=int, default=0, metavar="K", help="under mpirun: at most K cases of each test")
    where = "what all programs run on: a GPU, or its stand-in; by default tests that take `device` run on the stand-in"
    parser.addoption("--device", choices=("cuda", "stand-in", "cpu"), default="cpu", help=where)
    parser.addoption("--device-path", choices=PATHS, default="auto", help="how arrays come from there to real ranks")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """What `-n auto` means: as many processes as cores; none in a job, whose processes are there already."""
    del config
    return 0 if in_job() else None


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Join the job, if this is one; all ranks but 0 fall silent."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # by a script that started this with &
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if config.option.device != "cpu":
        library(config)
        xp.device, xp.path = "cuda", config.option.device_path
    if not in_job():
        config.stash[_RANKS] = VirtualRanks()
        return
    config.addinivalue_line("filterwarnings", "ignore:sd.run in a job:RuntimeWarning")  # of tests that compare worlds
    os.environ.setdefault("SIMDIST_TIMEOUT_S", "120")  # ranks without a part in a program wait until it is done
    config.stash[_RANKS] = ranks = RealRanks(sd.world())
    # tmp_path in a place of each rank's own, which pytest clears, be it not before one of the next runs.
    folder = Path(gettempdir(), f"pytest-of-ranks-{os.getuid()}", str(ranks.rank))
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.environ["PYTEST_DEBUG_TEMPROOT"] = str(folder)
    if ranks.rank > 0:
        for name in ("lfplugin", "nfplugin"):  # what pytest remembers of this run is what rank 0 saw
            config.pluginmanager.unregister(name=name)
        config.get_terminal_writer()._file = io.StringIO()


@pytest.fixture(scope="session")
def spmd(request: pytest.FixtureRequest) -> VirtualRanks | RealRanks:
    """spmd(program, p, *args) -> what program(comm, *args) returns on each of p ranks."""
    return request.config.stash[_RANKS]


@pytest.fixture(scope="session")
def device(request: pytest.FixtureRequest) -> Any:
    """The module `simdist.arrays.device`, on a card or on its stand-in: see device.py."""
    return library(request.config)


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures are made but not drawn, which is most of what a short run takes: for tests that do not look at them."""
    monkeypatch.setattr("matplotlib.figure.Figure.savefig", lambda *_, **__: None)


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """In a job, pass over the files without a test that takes `spmd`: to find tests there takes each rank seconds."""
    if in_job() and collection_path.match("test_*.py") and "spmd" not in collection_path.read_text():
        return True
    return None


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Look no more for garbage in modules, which stay: real ranks look for it whenever a group of theirs ends, and
    PyTorch, once it is there, is most of what there is to look through."""
    known = item.config.stash.get(_MODULES, 0)
    if len(sys.modules) > known + 50:
        item.config.stash[_MODULES] = len(sys.modules)
        gc.collect()
        gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Iterator[None]:
    """Keep the tests of this world, and see that all ranks have the same ones."""
    ranks = config.stash[_RANKS]
    _spare(items, of_all=isinstance(ranks, RealRanks))
    yield  # here -m takes what is slow away
    if isinstance(ranks, VirtualRanks):
        kept = [item for item in items if item.get_closest_marker("mpi") is None]
        kept.sort(
            key=lambda item: "test_real_ranks.py" not in item.nodeid
        )  # takes longest: alone at the end of -n auto
    else:
        fit = [item for item in items if ranks.num_nodes == 1 or item.get_closest_marker("one_node") is None]
        kept = _some([item for item in fit if "spmd" in getattr(item, "fixturenames", ())], config.option.cases)
    dropped = set(items) - set(kept)
    config.hook.pytest_deselected(items=[item for item in items if item in dropped])
    items[:] = kept
    if isinstance(ranks, RealRanks):
        listing = "\n".join(item.nodeid for item in items)
        summary = f"{len(items)} tests, {hashlib.sha256(listing.encode()).hexdigest()[:8]}"
        found = [text and text.decode() for text in ranks.meet("collection", summary.encode())]
        if len(set(found)) > 1:
            pytest.exit(f"the ranks found different tests: {', '.join(map(str, found))}", returncode=3)


def _spare(items: list[pytest.Item], of_all: bool) -> None:
    """Unmark cases that run although their test is slow: as many as `but` says, or all, for --cases to draw from."""
    marked = [item for item in items if [bool(mark.kwargs) for mark in item.iter_markers("slow")] == [True]]
    for cases in _drawn(marked):
        (mark,) = cases[0].iter_markers("slow")
        for item in cases if of_all else cases[: mark.kwargs["but"]]:
            item.own_markers.remove(mark)


def _some(items: list[pytest.Item], most: int) -> list[pytest.Item]:
    """At most so many cases of each test; all where `most` is 0."""
    cases = _drawn([item for item in items if most and not item.get_closest_marker("every_case")])
    left_out = {item for drawn in cases for item in drawn[most:]}
    return [item for item in items if item not in left_out]


def _drawn(items: list[pytest.Item]) -> list[list[pytest.Item]]:
    """The cases of each test, in an order that a hash of their names makes."""
    tests: dict[str, list[pytest.Item]] = {}
    for item in items:
        tests.setdefault(item.nodeid.partition("[")[0], []).append(item)
    return [sorted(cases, key=lambda item: hashlib.sha256(item.nodeid.encode()).digest()) for cases in tests.values()]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """A test that failed on one rank has failed on all."""
    report: Any = yield
    ranks = item.config.stash[_RANKS]
    last = call.when == "call" or (call.when == "setup" and not report.passed)
    if isinstance(ranks, RealRanks) and last:
        failures = ranks.verdict(report.longreprtext if report.failed else "")
        if failures:
            report.outcome = "failed"
            same = len(set(failures.values())) == 1 and len(failures) == ranks.size
            report.longrepr = "\n\n".join(
                f"on {'all ranks' if same else f'rank {rank}'}:\n{text}"
                for rank, text in list(failures.items())[: 1 if same else None]
            )
    return report


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """A session that failed on one rank (in a fixture's end, say) has failed on all."""
    ranks = session.config.stash.get(_RANKS, None)
    if isinstance(ranks, RealRanks):
        session.exitstatus = max(int(status or 1) for status in ranks.meet("exit", b"%d" % exitstatus))
