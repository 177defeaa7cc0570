"""What is said of the deaths in a job whose output goes where this process's goes; the signals that end it."""

import os
import signal
import sys
from types import SimpleNamespace

import pytest

from simdist.errors import ArgumentError, WorldUnavailable
from simdist.launch.job import Death
from simdist.launch.mpirun import DEAF
from simdist.launch.script import _ending_on_signals, _Stopped, _tell_deaths, _wait, launch_script


@pytest.mark.parametrize(("survive", "told"), [(True, [0, 1, 1, 2]), (False, [0, 1, 1, 1])])
def test_each_death_that_counts_is_told_once(capsys, survive, told):
    job = SimpleNamespace(survive=survive, ranks=4, deaths=[])
    found = [_tell_deaths(job, 0)]
    job.deaths.append(Death(2, 77, 0.0, "was killed by signal 9 (SIGKILL)"))
    found += [_tell_deaths(job, found[-1])]
    found += [_tell_deaths(job, found[-1])]
    job.deaths.append(Death(1, 66, 1.0, ""))
    found += [_tell_deaths(job, found[-1])]
    assert found == told
    lines = [
        "simdist: rank 2 of 4 (process 77) was killed by signal 9 (SIGKILL)",
        "simdist: rank 1 of 4 (process 66) has died",
    ]
    assert capsys.readouterr().err.splitlines() == lines[: told[-1]]


@pytest.mark.parametrize(
    ("code", "overdue", "told"), [(1, "it went on", True), (141, "it went on", False), (3, "", False)]
)
def test_why_it_was_ended_is_told_unless_nobody_reads_it(capsys, code, overdue, told):
    job = SimpleNamespace(survive=False, ranks=2, deaths=[], overdue=overdue)

    def poll():
        for found in (None, None, code):
            if found is not None:
                job.deaths.append(Death(1, 66, 1.0, ""))
            yield found

    job.poll = poll().__next__
    assert _wait(job) == code
    death, *why = capsys.readouterr().err.splitlines()
    assert death == "simdist: rank 1 of 2 (process 66) has died", "also of one at the end"
    assert why == (["simdist: the job was ended: it went on"] if told else [])


def send(*numbers):
    for number in numbers:
        os.kill(os.getpid(), number)


@pytest.fixture
def handlers():
    """Before a test and after it SIGINT, SIGTERM and SIGUSR1 end this process; SIGHUP is ignored, as under nohup."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)
    found = [signal.SIG_DFL, signal.SIG_DFL, signal.SIG_IGN, signal.SIG_DFL]
    before = [signal.signal(number, handler) for number, handler in zip(numbers, found, strict=True)]
    yield
    after = [signal.signal(number, handler) for number, handler in zip(numbers, before, strict=True)]
    assert after == found


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_job_once(handlers, number):
    done = []

    def stopped():
        with _ending_on_signals([], ()):
            try:
                send(number)
            finally:  # as ranks are ended
                send(signal.SIGINT, signal.SIGTERM)
                done.append("all")

    with pytest.raises(_Stopped) as caught:
        stopped()
    assert (caught.value.number, done) == (number, ["all"])


def test_what_is_ignored_stays_ignored(handlers):
    with _ending_on_signals([], ()):
        send(signal.SIGHUP)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    with pytest.raises(_Stopped), _ending_on_signals([], ()):
        send(signal.SIGHUP)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


@pytest.mark.parametrize("patience_s", [0.0, 60.0])
def test_signals_that_the_ranks_handle_are_theirs(handlers, monkeypatch, patience_s):
    monkeypatch.setattr("simdist.launch.script._PATIENCE_S", patience_s)
    heard, handled, went_on = [], [signal.SIGUSR1, signal.SIGINT], []
    job = SimpleNamespace(signal=lambda number: heard.append(number) or number in handled)

    def stopped():
        with _ending_on_signals([job], (signal.SIGUSR1, signal.SIGINT)):
            for number in (signal.SIGUSR1, signal.SIGUSR1, signal.SIGINT, signal.SIGINT):
                send(number)
                went_on.append(number)
            handled.clear()
            send(signal.SIGUSR1)  # never ends it
            send(signal.SIGINT)

    with pytest.raises(_Stopped):
        stopped()
    assert len(went_on) == (4 if patience_s else 3), "the second one may be the first, passed on by another process"
    assert heard[:4] == [signal.SIGUSR1, signal.SIGUSR1, signal.SIGINT, signal.SIGINT]


class Fake:
    """A job that ends at its third look with code 7, and before that does what it is told to do."""

    deaths, overdue = (), ""

    def __init__(self, act):
        self.act, self.told, self.ended, self.looks = act, [], False, 0

    def __call__(self, *told):
        self.told.append(told)
        return self

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.ended = True

    def start(self, words, told):
        self.told += [words, told]

    def poll(self):
        self.looks += 1
        self.act()
        return 7 if self.looks == 3 else None


@pytest.mark.parametrize("survive", [False, True])
@pytest.mark.parametrize(("heed", "deaf"), [((), {}), ((signal.SIGUSR1,), {DEAF: str(int(signal.SIGUSR1))})])
def test_a_script_is_what_the_ranks_of_a_job_run(monkeypatch, tmp_path, survive, heed, deaf):
    (tmp_path / "script.py").touch()
    monkeypatch.setattr("simdist.launch.script.Job", job := Fake(lambda: None))
    monkeypatch.setenv("SIMDIST_TIMEOUT_S", "5")
    job.survive = survive
    words = [str(tmp_path / "script.py"), "a"]
    assert launch_script(3, words, heed, survive) == 7
    start = [sys.executable, "-m", "simdist.launch.rank_process", *words]
    assert job.told == [(3, 5.0, survive), start, deaf] and job.ended


def test_a_signal_ends_its_job(monkeypatch, handlers):
    monkeypatch.setattr("simdist.launch.script.Job", job := Fake(lambda: send(signal.SIGTERM)))
    job.survive = False
    assert launch_script(3, ["-m", "simdist"]) == 128 + signal.SIGTERM
    assert job.ended


def test_a_signal_reaches_its_ranks(monkeypatch, handlers):
    monkeypatch.setattr("simdist.launch.script.Job", job := Fake(lambda: send(signal.SIGUSR1)))
    heard, job.survive = [], False
    job.signal = heard.append
    assert launch_script(3, ["-m", "simdist"], heed=[signal.SIGUSR1]) == 7
    assert heard == [signal.SIGUSR1] * 3


def test_a_module_of_this_folder_will_do(monkeypatch, tmp_path):
    (tmp_path / "module_of_mine.py").touch()
    monkeypatch.setattr("simdist.launch.script.Job", job := Fake(lambda: None))
    job.survive = False
    with pytest.raises(ArgumentError, match="module_of_mine"):
        launch_script(3, ["-m", "module_of_mine"])
    monkeypatch.chdir(tmp_path)
    assert launch_script(3, ["-m", "module_of_mine"]) == 7


def test_more_ranks_than_fit_and_jobs_in_jobs_are_refused(monkeypatch):
    with pytest.raises(ArgumentError, match="enough for"):
        launch_script(10**9, ["-m", "simdist"])
    monkeypatch.setenv("PMI_RANK", "0")
    with pytest.raises(WorldUnavailable, match="already a rank"):
        launch_script(3, ["-m", "simdist"])


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ([], "no script to run: none given"),
        (["-m"], "no script to run: -m"),
        (["nowhere.py", "a"], "no script to run: nowhere.py a"),
        (["-m", "nowhere.sub", "a"], "no module to run: nowhere.sub"),
        (["-m", "__main__"], "no module to run: __main__"),
        (["-m", ""], "no module to run: "),
        (["-m", "bare"], "no module to run: bare is a package without __main__.py"),
    ],
)
def test_what_is_not_there_is_told_before_ranks_are_started(words, found, tmp_path, monkeypatch):
    (tmp_path / "bare").mkdir()
    (tmp_path / "bare" / "__init__.py").touch()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ArgumentError) as caught:
        launch_script(2, words)
    assert str(caught.value) == found
