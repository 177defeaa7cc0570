import sys
from math import nan

from simdist.training import Line, Progress

LINE = Line(50, 2.5, 2.25, 0.1, 0.0, 123456.7, 0.25, 1626624)


def test_without_a_terminal_it_is_one_line_an_interval(capsys):
    with Progress(100) as progress:
        for i in range(100):
            progress.step(LINE if i in (49, 99) else None)
    out, err = capsys.readouterr()
    assert len(out.splitlines()) == 3
    assert out.splitlines()[1].split() == ["50", "2.5000", "2.2500", "123,457", "25%", "1,626,624", "B"]
    assert err == ""


def test_a_loss_keeps_to_its_column(capsys):
    lost = LINE._replace(train_loss=1.5e25, validation_loss=nan)
    with Progress(3) as progress:
        for line in (LINE, lost, LINE._replace(train_loss=99.5, validation_loss=100.0)):
            progress.step(line)
    head, *lines = capsys.readouterr().out.splitlines()
    assert {len(line) for line in lines} == {len(head)}
    assert lines[1].split()[1:3] == ["1.5e+25", "nan"]


def test_without_validation_there_is_no_column_for_it(capsys):
    with Progress(100, num_losses=1) as progress:
        progress.step(LINE._replace(validation_loss=nan))
    head, line = capsys.readouterr().out.splitlines()
    assert head.split()[:3] == ["step", "train", "tokens/s"]
    assert line.split()[:3] == ["50", "2.5000", "123,457"]
    assert len(line) == len(head)


def test_the_log_is_told_the_same(capsys):
    told = []
    with Progress(100, 50, told.append) as progress:
        progress.say("hello")
        progress.step(LINE)
    assert capsys.readouterr().out.splitlines() == told
    assert len(told) == 3


def test_on_a_terminal_there_is_a_bar(capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with Progress(5, done=3) as progress:
        assert "3/5" in capsys.readouterr().err
        progress.step(LINE)
        progress.step(None)
        assert progress._bar.n == 5
    assert "2.5000" in capsys.readouterr().out


def test_a_bar_that_nobody_asks_for_is_not_there(capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with Progress(5, bar=False) as progress:
        progress.step(LINE)
    out, err = capsys.readouterr()
    assert len(out.splitlines()) == 2
    assert err == ""
