"""What is said of the deaths in a job whose output goes where this process's goes."""

from types import SimpleNamespace

import pytest

from simdist.launch.job import Death
from simdist.launch.script import _tell_deaths, _wait


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
