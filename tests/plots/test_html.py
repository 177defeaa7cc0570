"""The timeline as a page, against the record that it shows."""

import json
import re
from html.parser import HTMLParser

import matplotlib.image
import numpy as np
import pytest
from browser import Browser
from matplotlib.colors import to_rgb

import simdist as sd
from simdist.arrays import CATEGORIES, Ledger, Moment, hold, recorded
from simdist.collectives import all_reduce
from simdist.errors import ArgumentError, DataError
from simdist.plots import style, timeline_page
from simdist.plots.boxes import boxes
from simdist.trace import Span, Trace
from simdist.trace.memory import remember


class Elements(HTMLParser):
    """The elements of a page: their names, attributes and texts."""

    def __init__(self, html):
        super().__init__()
        self.found = []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.found.append([tag, dict(attrs), ""])

    def handle_data(self, data):
        if self.found:
            self.found[-1][2] += data

    def texts(self, tag):
        return [text.strip() for name, _, text in self.found if name == tag]


def content(page):
    """The data in a page, as a browser would find them."""
    (data,) = [text for tag, attrs, text in Elements(page.html).found if attrs.get("id") == "data"]
    return json.loads(data)


def spans_of(data):
    """The spans that a page has, read back."""
    columns = [
        [data["texts"][n] for n in column] if field in ("stream", "name", "context", "detail") else column
        for field, column in data["spans"].items()
    ]
    return [Span(*row) for row in zip(*columns, strict=True)]


def train(comm):
    ledger = Ledger(comm.clock)
    side = comm.stream("communication")
    with recorded(ledger):
        for _ in range(2):
            with comm.span("step"):
                kept = np.ones(1000 * (1 + comm.rank))
                hold("activations", kept, "layer 1")
                comm.compute(seconds=30e-6 * (1 + comm.rank), name="forward")
                gradients = np.ones(5000)
                hold("gradients", gradients, "layer 0")
                work = side.start(all_reduce, gradients, side.comm, algorithm="ring")
                comm.compute(seconds=60e-6, name="backward")
                del kept
                work.wait()
                del gradients
    remember(ledger.moments, comm.recorder)


@pytest.fixture(scope="module")
def run():
    return sd.run(train, ranks=3).trace


@pytest.fixture(scope="module")
def page(run):
    return timeline_page(run)


@pytest.fixture
def browser(tmp_path):
    return Browser(tmp_path)


# -- what is in the page --------------------------------------------------------------------------------


def test_the_page_has_all_of_the_record(run, page):
    data = content(page)
    spans = spans_of(data)
    assert spans == [s for s in run if s.stream != "states"]
    assert [(spans[i], spans[j]) for i, j in data["messages"]] == run.messages()
    assert [(data["rows"][n]["rank"]) for n in data["row"]] == [s.rank for s in spans]
    assert [row["label"] for row in data["rows"]] == [w for r in range(3) for w in (f"rank {r}", "communication")]
    looks = [data["looks"][n] for n in data["look"]]
    assert looks == [box._asdict() for box in boxes(spans)]


def test_the_page_says_what_the_picture_says(run, page):
    title = " ".join(run.plot().get_suptitle().split())
    assert Elements(page.html).texts("title") == Elements(page.html).texts("h1") == [title]


def test_the_same_colours_as_in_the_picture(page):
    data = content(page)
    assert {k: c["fill"] for k, c in data["colours"].items()} == {k: style.colour(k) for k in data["colours"]}
    words = ["forward", "backward", "all_reduce", "send", "receive", "waiting"]
    assert [key["word"] for key in data["key"]][: len(words)] == words


def test_memory_is_a_track_of_its_own(run, page):
    data = content(page)
    told = data["memory"]["2"]
    assert told["peak_bytes"] >= 3000 * 8 + 5000 * 8
    assert max(told["live"][CATEGORIES.index("activations")]) == 3000 * 8
    assert "layer 1" in {data["texts"][n] for n in told["at"]}
    assert {"memory: activations", "memory: gradients"} < {key["word"] for key in data["key"]}


def test_memory_survives_the_file(run, tmp_path):
    run.save(tmp_path / "t.json")
    assert content(timeline_page(Trace.load(tmp_path / "t.json")))["memory"] == content(timeline_page(run))["memory"]


def test_memory_at_the_right_moments():
    moments = [Moment(float(t), (10 * t, 0, 0, 5, 0, 0), f"at {t}") for t in range(4)]

    def program(comm):
        comm.compute(seconds=3.0)
        remember(moments, comm.recorder)

    data = content(timeline_page(sd.run(program, ranks=1).trace, end_s=2.0))
    assert data["memory"]["0"]["time_s"] == [0.0, 1.0, 2.0]
    assert data["memory"]["0"]["live"][0] == [0, 10, 20]
    assert data["memory"]["0"]["peak_bytes"] == 25
    later = content(timeline_page(sd.run(program, ranks=1).trace, start_s=1.5, end_s=2.5))
    assert later["memory"]["0"]["time_s"] == [1.0, 2.0]


def test_nothing_from_outside(page):
    for tag, attributes, _ in Elements(page.html).found:
        assert not {"src", "href", "srcset", "action", "data"} & set(attributes), (tag, attributes)
    assert not re.search(r"https?:|//[a-z]+\.|url\(|@import|\bimport\b|fetch\(|XMLHttpRequest|WebSocket", page.html)
    assert "default-src 'none'" in page.html


def test_names_cannot_become_part_of_the_page():
    evil = '</script><script>document.title = "out"</script><b>&amp;\u2028 "\\'
    spans = [Span(0, evil, evil, 0.0, 1.0, 8, 0, 0, evil, -1, evil)]
    page = timeline_page(Trace(spans, 1))
    assert spans_of(content(page)) == spans
    assert [tag for tag, *_ in Elements(page.html).found].count("script") == 2
    assert "<b>" not in [tag for tag, *_ in Elements(page._repr_html_()).found]


def test_a_notebook_shows_it_in_a_frame_that_cannot_reach_out(page):
    ((tag, attributes, _),) = Elements(page._repr_html_()).found
    assert (tag, attributes["sandbox"]) == ("iframe", "allow-scripts")
    assert attributes["srcdoc"] == page.html


def test_a_part_of_the_ranks_and_of_the_time(run):
    data = content(timeline_page(run, ranks=[2, 0], start_s=50e-6, end_s=100e-6))
    assert [row["rank"] for row in data["rows"] if row["label"] != "communication"] == [2, 0]
    inside = [s for s in run if s.rank != 1 and s.start_s <= 100e-6 and s.end_s >= 50e-6 and s.stream != "states"]
    assert spans_of(data) == inside
    assert set(data["memory"]) <= {"0", "2"}


def test_numbers_of_numpy_are_numbers():
    def program(comm):
        x = np.ones(3)
        (comm.send if comm.rank == 0 else comm.recv)(x, np.int64(1 - comm.rank), tag=np.int64(7))

    trace = sd.run(program, 2).trace
    data = content(timeline_page(trace, ranks=np.arange(2), start_s=np.float32(0)))
    assert spans_of(data) == trace.spans
    assert (data["start_s"], [row["rank"] for row in data["rows"]]) == (0.0, [0, 1])


def test_all_of_many_ranks():
    spans = [Span(rank, "main", "compute", 0.0, 1.0) for rank in range(100)]
    assert len(content(timeline_page(Trace(spans, 100)))["rows"]) == 100


@pytest.mark.parametrize(
    ("options", "fault"),
    [({"ranks": [3]}, "rank 3 is not one of"), ({"start_s": 9.0}, "nothing was recorded")],
)
def test_what_cannot_be_shown(run, options, fault):
    with pytest.raises(ArgumentError, match=fault):
        timeline_page(run, **options)


def test_too_much_is_an_error(run, monkeypatch):
    monkeypatch.setattr("simdist.plots.html.MOST_SPANS", 10)
    with pytest.raises(ArgumentError, match="spans are more than 10; show fewer ranks, or less time"):
        timeline_page(run)


def test_so_are_more_ranks_than_anybody_can_look_at():
    forged = Trace([Span(0, "main", "compute", 0.0, 1.0)], 10**9)
    with pytest.raises(ArgumentError, match="1,000,000,000 ranks are more than 100,000; show fewer ranks"):
        timeline_page(forged)
    assert len(timeline_page(forged, ranks=[0, 5]).html) > 0


def test_it_must_be_writable(page, tmp_path):
    page.save(tmp_path / "t.html")
    assert (tmp_path / "t.html").read_text(encoding="utf-8") == page.html
    with pytest.raises(DataError, match="cannot write"):
        page.save(tmp_path / "nowhere" / "t.html")


# -- what a browser makes of it -------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["alone", "in a notebook"])
def test_it_draws_in_the_right_colours(browser, page, tmp_path, where):
    html = page.html if where == "alone" else f"<body>{page._repr_html_()}</body>"
    browser.screenshot(html, tmp_path / "page.png")
    pixels = matplotlib.image.imread(tmp_path / "page.png")[..., :3].reshape(-1, 3)
    for kind in ("forward", "backward", "all_reduce", "send", "recv"):
        assert (np.abs(pixels - to_rgb(style.colour(kind))).max(axis=1) < 0.01).sum() > 300, kind


def test_zoom_drag_and_keys(browser, page, run):
    end_s = max(s.end_s for s in run)
    told = browser.run(
        page.html,
        """
        const told = {}, state = () => [view.start, view.end, view.scroll];
        const wheel = (deltaY, more = {}) => canvas.dispatchEvent(new WheelEvent("wheel",
          { deltaY, clientX: canvas.getBoundingClientRect().left + 600, clientY: 300, ...more }));
        const pointer = (type, clientX, clientY) =>
          canvas.dispatchEvent(new PointerEvent(type, { clientX, clientY, pointerId: 1 }));
        const key = (key) => document.dispatchEvent(new KeyboardEvent("keydown", { key }));
        told.all = state();
        const held = time(600);
        wheel(-400); told.zoomed = state(); told.moved = x(held) - 600;
        pointer("pointerdown", 700, 200); pointer("pointermove", 500, 200); pointer("pointerup", 500, 200);
        told.dragged = state();
        key("ArrowLeft"); told.left = state();
        key("0"); told.back = state();
        for (let i = 0; i < 300; i++) wheel(-400);
        told.nearest = state();
        for (let i = 0; i < 300; i++) wheel(400);
        told.farthest = state();
        wheel(1e6, { shiftKey: true }); told.scrolled = state();
        return told;
        """,
    )
    assert told["all"] == told["back"] == told["farthest"] == pytest.approx([0, end_s, 0])
    seen = told["zoomed"][1] - told["zoomed"][0]
    assert seen == pytest.approx(end_s / 1.0015**400)
    assert told["moved"] == pytest.approx(0, abs=0.01)
    assert told["dragged"][0] - told["zoomed"][0] == pytest.approx(200 / (1200 - 108) * seen)
    assert told["left"][0] == pytest.approx(told["dragged"][0] - seen / 8)
    assert told["nearest"][1] - told["nearest"][0] == pytest.approx(1e-9)
    assert told["scrolled"][2] >= 0


def test_what_lies_under_the_pointer_is_told(browser, page, run):
    names = ["forward", "all_reduce ring", "send", "recv"]
    spans = [s for s in run if s.stream != "states"]
    asked = [next(i for i, s in enumerate(spans) if s.name == name and s.rank == 1) for name in names]
    told = browser.run(
        page.html,
        f"""
        return {asked}.map((i) => {{
          const look = lookOf(i), track = trackOf(i), role = look.role;
          const at = role === "collective" ? look.top + 0.05 : (look.top + look.bottom) / 2;
          const px = x((spans.start_s[i] + spans.end_s[i]) / 2), py = middle(track) + at * track.height;
          const box = canvas.getBoundingClientRect();
          const at_ = {{ clientX: box.left + px, clientY: box.top + py }};
          canvas.dispatchEvent(new PointerEvent("pointermove", at_));
          return [found(px, py).span, tip.querySelector("b").textContent,
            Object.fromEntries([...tip.querySelectorAll("em")].map((e) => [e.textContent, e.nextSibling.textContent]))];
        }});
        """,
    )
    assert [i for i, *_ in told] == asked
    assert [name for _, name, _ in told] == names
    facts = {name: lines for _, name, lines in told}
    assert facts["forward"]["rank"] == "1, main"
    assert facts["forward"]["duration"] == "60 µs"
    assert facts["all_reduce ring"]["bytes"].startswith("39.1 KiB (40,000)")
    send = spans[asked[2]]
    assert facts["send"]["to"] == "rank 2"
    assert facts["send"]["bytes"] == f"{style.size(send.bytes)} ({send.bytes:,})"
    assert facts["recv"]["from"] == "rank 0"


def test_what_is_said_of_times_is_what_statistics_say(browser, run, page):
    script = "return spans.name.map((_, i) => Object.fromEntries(facts(i)[1]).waited || '');"
    told = browser.run(page.html, script)
    spans = [s for s in run if s.stream != "states"]
    waited = {spans.index(b): min(b.end_s, a.start_s) - b.start_s for a, b in run.messages()}
    assert max(waited.values()) > 0
    for i, s in enumerate(spans):
        if s.name == "send":
            continue
        late_s = waited.get(i, 0.0)
        assert (told[i] != "") == (late_s > 0)
        if late_s > 0:
            value, unit, *who = told[i].split()
            assert float(value) * {"s": 1.0, "ms": 1e-3, "µs": 1e-6, "ns": 1e-9}[unit] == pytest.approx(
                late_s, rel=1e-3
            )
            assert who == ["for", "rank", str(s.peer)]


def test_in_a_direct_collective_they_wait_for_the_last(browser):
    def program(comm):
        comm.compute(seconds=1.0 + comm.rank)
        all_reduce(np.ones(100), comm, algorithm="direct")

    script = "return spans.name.map((_, i) => Object.fromEntries(facts(i)[1]).waited || '');"
    told = browser.run(timeline_page(sd.run(program, ranks=2).trace).html, script)
    assert [words for words in told if words] == ["1 s for the last rank"]


def test_arrows_on_demand(browser, page, run):
    told = browser.run(
        page.html,
        """
        const lines = [], real = Path2D.prototype.lineTo;
        Path2D.prototype.lineTo = function (a, b) { lines.push([a, b]); real.call(this, a, b); };
        const count = () => { lines.length = 0; draw(); return lines.length; };
        const told = { none: count() };
        document.getElementById("arrows").click();
        told.all = count();
        document.getElementById("arrows").click();
        chosen = data.messages[0][0]; told.one = count();
        chosen = spans.name.findIndex((n) => data.texts[n] === "all_reduce ring"); told.collective = count();
        return told;
        """,
    )
    messages = len(run.messages())
    assert told == {"none": 0, "all": messages, "one": 1, "collective": 8}  # two ranks' worth: 4 sent and 4 received


def test_names_cannot_run_in_a_browser(browser):
    evil = '</script><script>document.title = "out"</script><img src=x onerror="document.title = 1">'
    page = timeline_page(Trace([Span(0, evil, evil, 0.0, 1.0, 8, 0, 0, evil, -1, evil)], 1))
    script = """
        canvas.dispatchEvent(new PointerEvent("pointermove", { clientX: 600, clientY: 90 }));
        return [document.title, document.querySelectorAll("img").length, tip.hidden];
    """
    title, images, hidden = browser.run(page.html, script)
    assert (title[:6], images, hidden) == ("1 rank", 0, False)


def test_many_spans_are_drawn_once_a_pixel(browser):
    spans = [Span(0, "main", "compute" if k % 2 else "update", float(k), k + 0.9) for k in range(50_000)]
    drawn, note = browser.run(
        timeline_page(Trace(spans, 1)).html,
        """
        let drawn = 0;
        const real = ctx.fillRect.bind(ctx);
        ctx.fillRect = (...box) => { drawn++; real(...box); };
        draw();
        return [drawn, document.getElementById("note").textContent];
        """,
    )
    assert drawn < 2 * 1200 + 100
    assert "spans narrower than a pixel are hidden by others: zoom in." in note
