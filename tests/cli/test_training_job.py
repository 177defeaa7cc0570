"""What a run prints of texts that a model wrote."""

import json

import pytest

from simdist.cli.training_job import _quoted


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('say "ä → 😀"', '"say \\"ä → 😀\\""'),
        ("\x1b[2J\x7f\n", r'"\u001b[2J\u007f\n"'),
        ("\x9b2J\x85", r'"\u009b2J\u0085"'),  # C1: a terminal may take U+009B for ESC [
        ("\u202eabc\u2028\U000e0001", r'"\u202eabc\u2028\udb40\udc01"'),  # that turn the line round, or end it
    ],
)
def test_texts_are_one_line_and_command_no_terminal(text, told):
    assert _quoted(text.encode()) == told
    assert json.loads(told) == text
