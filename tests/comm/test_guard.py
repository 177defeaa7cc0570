"""What a guard prints of its rank's end."""

from simdist.comm.guard import _print
from simdist.errors import RankFailed


def test_a_message_with_a_file_name_that_is_no_text_is_printed_as_python_does(capfd):
    _print(RankFailed("no caf\udce9"))
    assert capfd.readouterr().err == "simdist: RankFailed: no caf\\udce9\n"
