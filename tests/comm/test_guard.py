"""What a guard prints of its rank's end."""

import io
import sys

import pytest

from simdist.comm.guard import _print
from simdist.errors import RankFailed


def test_a_message_with_a_file_name_that_is_no_text_is_printed_as_python_does(capfd):
    _print(RankFailed("no caf\udce9"))
    assert capfd.readouterr().err == "simdist: RankFailed: no caf\\udce9\n"


@pytest.mark.parametrize("stderr", [None, "closed"])
def test_it_is_printed_even_where_the_program_has_put_away_stderr(capfd, monkeypatch, stderr):
    if stderr:
        stderr = io.StringIO()
        stderr.close()
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", stderr)
        _print(RankFailed("gone"))
    assert capfd.readouterr().err == "simdist: RankFailed: gone\n"
