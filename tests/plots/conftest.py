"""What every picture must keep: it can be drawn, as pixels and as SVG, and nothing that is written leaves the paper."""

from io import BytesIO

import matplotlib as mpl
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text


class Picture:
    """A figure that has been drawn, and what is written in it."""

    def __init__(self, figure: Figure) -> None:
        self.figure = figure
        FigureCanvasAgg(figure).draw()
        axes = [axis for ax in figure.axes for axis in (ax.xaxis, ax.yaxis)]
        shown = {tick for axis in axes for tick in axis._update_ticks()}  # others wait outside the axes
        hidden = {t.label1 for axis in axes for t in [*axis.majorTicks, *axis.minorTicks] if t not in shown}
        texts = [t for t in figure.findobj(Text) if t.get_visible() and t.get_text().strip()]
        self.texts = [t for t in texts if t not in hidden]
        self.title = " ".join(figure.get_suptitle().split())
        self.axes = [ax for ax in figure.axes if ax.axison]

    @property
    def words(self):
        """All that is written."""
        return [" ".join(t.get_text().split()) for t in self.texts]

    @property
    def key(self):
        """The words of the key."""
        return [t.get_text() for legend in self.figure.legends for t in legend.get_texts()]

    @property
    def note(self):
        """What the picture says that it leaves out."""
        return " ".join(" ".join(legend.get_title().get_text().split()) for legend in self.figure.legends)

    def require_readable(self):
        """Everything is written inside the paper, and no smaller than can be read."""
        paper = self.figure.bbox
        for text in self.texts:
            box = text.get_window_extent()
            inside = box.x0 >= -2 and box.x1 <= paper.x1 + 2 and box.y0 >= -2 and box.y1 <= paper.y1 + 2
            clipped = text.get_clip_on() and text.get_clip_path() is not None
            assert inside or clipped, text.get_text()
            assert text.get_fontsize() >= 3.4, text.get_text()
        title = self.figure._suptitle.get_window_extent()
        for ax in self.axes:
            assert not ax.get_window_extent().overlaps(title)
        for legend in self.figure.legends:
            for ax in self.axes:
                assert not ax.get_window_extent().overlaps(legend.get_window_extent())
        out = BytesIO()
        self.figure.set_layout_engine("none")  # it has been laid out, which takes longer than to draw it
        self.figure.savefig(out, format="svg")
        assert out.tell() > 1000


@pytest.fixture
def draw():
    """draw(function, …): the picture, after making sure that it is readable and has left no traces."""

    def draw(function, *args, **options):
        before = dict(mpl.rcParams)
        figure = function(*args, **options)
        assert dict(mpl.rcParams) == before
        picture = Picture(figure)
        picture.require_readable()
        return picture

    return draw
