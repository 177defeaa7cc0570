import numpy as np
import pytest

from simdist.errors import ArgumentError
from simdist.plots import ServerTraffic, server_traffic, style

MEASURED = [ServerTraffic(p, p * 1064, 2 * 1024 * (p - 1) / p) for p in (8, 1, 2, 4)]


@pytest.mark.parametrize("width", [style.COLUMN, style.PAGE])
def test_a_servers_traffic_beside_a_rings(draw, width):
    picture = draw(server_traffic, MEASURED, 1024, width=width)
    assert picture.title == "With 8 workers the server sends 8.31 KiB a step, 4.75 times what a rank of a ring does"
    assert picture.key == ["one server", "ring all-reduce"]
    formula, marks, ring, _ = picture.axes[0].lines
    assert list(marks.get_ydata()) == [1064, 2128, 4256, 8512]
    np.testing.assert_allclose(formula.get_ydata(), 1024 * np.asarray(formula.get_xdata()))
    assert max(ring.get_ydata()) == pytest.approx(2 * 1024 * 7 / 8)


def test_one_worker(draw):
    assert draw(server_traffic, MEASURED[1:2], 1024).title == "With 1 worker the server sends 1.04 KiB a step"


def test_nothing_to_draw():
    with pytest.raises(ArgumentError, match="no traffic"):
        server_traffic([], 8)
