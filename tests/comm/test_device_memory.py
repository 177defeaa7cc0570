"""Windows of device memory, as far as they fail before there is any."""

from types import SimpleNamespace

import pytest

from simdist.comm import device_memory
from simdist.comm.device_memory import DeviceWindow
from simdist.errors import ArrayError


class Refused(Exception):
    """What CUDA raises."""


def test_where_one_rank_has_no_memory_all_are_told_why(spmd, monkeypatch):
    def program(comm):
        def exported(num_bytes):
            if comm.rank == 1:
                raise Refused(f"out of {'é' * 600}")
            return None, b"handle"

        library = SimpleNamespace(failure=Refused, exported=exported)
        monkeypatch.setattr(device_memory, "device_library", lambda: library)
        with pytest.raises(ArrayError) as caught:
            DeviceWindow(comm, "window", 8)
        return str(caught.value)

    words = f"rank 1 cannot allocate device memory that others can open: out of {'é' * 495}"
    assert spmd(program, 3) == [words] * 3
