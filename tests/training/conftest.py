"""What all tests of training runs can take."""

import pytest


@pytest.fixture
def text(tmp_path):
    """A text that repeats itself, so that there is something to learn."""
    (tmp_path / "text").write_bytes(b"the quick brown fox jumps over the lazy dog; " * 200)
    return str(tmp_path / "text")
