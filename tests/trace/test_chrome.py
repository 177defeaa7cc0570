"""The file: read back exactly, and by the rules of the viewer that shows it."""

import json
import os
import random
from collections import defaultdict
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import simdist as sd
from simdist.collectives import all_reduce
from simdist.errors import ArgumentError, DataError
from simdist.trace import Span, Trace, chrome

names = st.sampled_from(["send", "recv", "compute", "all_reduce ring", "2F0"]) | st.text(max_size=8)
times = st.floats(0, 1e4, allow_nan=False)
spans = st.builds(
    lambda rank, stream, name, start, length, *rest: Span(rank, stream, name, start, start + length, *rest),
    st.integers(0, 3),
    st.sampled_from(["main", "communication"]) | st.text(max_size=5),
    names,
    times,
    times,
    st.integers(0, 2**62),
    st.integers(-1, 3),
    st.integers(-(2**31), 2**31),
    st.text(max_size=5),
    st.integers(-1, 9),
    st.text(max_size=9),
)


@settings(max_examples=60)
@given(st.lists(spans, max_size=12))
def test_what_is_written_is_read_exactly(tmp_path_factory, record):
    path = tmp_path_factory.mktemp("trace") / "t.json"
    trace = Trace(record, 4)
    trace.save(path)
    again = Trace.load(path)
    assert again.spans == trace.spans
    assert again.ranks == 4


def test_numpy_numbers_are_written_as_numbers(tmp_path):
    path = tmp_path / "t.json"
    Trace([Span(0, "main", "send", np.float64(0.1), np.float64(0.3), np.int64(8), 1)], 2).save(path)
    assert Trace.load(path).spans == [Span(0, "main", "send", 0.1, 0.3, 8, 1)]


def program(comm):
    side = comm.stream("communication")
    x, y = np.ones(40_000, np.float32), np.ones(100, np.float32)
    with comm.span("step", detail='"quoted" \\ <b>&\u2028'):
        work = side.start(all_reduce, x, side.comm, algorithm="ring")
        comm.compute(seconds=2e-6 * (1 + comm.rank), name="forward")
        all_reduce(y, comm, algorithm="naive")
        work.wait()


@pytest.fixture(scope="module")
def trace():
    return sd.run(program, ranks=5).trace


@pytest.fixture(scope="module")
def events(trace, tmp_path_factory):
    path = tmp_path_factory.mktemp("trace") / "t.json"
    trace.save(path)
    return json.loads(path.read_text())["traceEvents"]


def slices(events):
    return [e for e in events if e["ph"] == "X"]


def nanoseconds(microseconds):
    """As Perfetto takes them in: to the nearest."""
    return round(Decimal(str(microseconds)) * 1000)


def test_a_process_for_each_rank_and_a_thread_for_each_stream(events):
    processes = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert processes == {rank: f"rank {rank}" for rank in range(5)}
    assert [e["args"]["sort_index"] for e in events if e["name"] == "process_sort_index"] == list(range(5))
    threads = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    for e in slices(events):
        assert threads[e["pid"], e["tid"]].split(",")[0] == e["args"]["stream"]
    assert {"main", "communication"} <= set(threads.values())
    tids = [tid for _, tid in threads]
    assert len(set(tids)) == len(tids)  # viewers name a thread by its number alone
    assert not set(tids) & set(processes)


def require_nesting(events):
    tracks = defaultdict(list)
    for e in slices(events):
        tracks[e["tid"]].append((nanoseconds(e["ts"]), nanoseconds(e["ts"]) + nanoseconds(e["dur"])))
    for track in tracks.values():
        open_ = []
        for start, end in sorted(track, key=lambda t: (t[0], -t[1])):
            while open_ and open_[-1] <= start:
                open_.pop()
            assert not open_ or end <= open_[-1]
            open_.append(end)


def test_on_no_thread_do_slices_overlap_unless_one_encloses_the_other(events):
    require_nesting(events)


@pytest.mark.parametrize("grain", [0.6e-9, 1.4e-9, 1e-6 / 7])
def test_slices_that_touch_between_two_nanoseconds_do_not_overlap(tmp_path, grain):
    path = tmp_path / "t.json"
    Trace([Span(0, "main", "send", k * grain, (k + 1) * grain, 1, 0) for k in range(100)], 1).save(path)
    events = json.loads(path.read_text())["traceEvents"]
    require_nesting(events)
    assert len({e["tid"] for e in slices(events)}) == 1


def test_times_are_in_microseconds(events, trace):
    assert [e["ts"] for e in slices(events)] == pytest.approx([s.start_s * 1e6 for s in trace], abs=1e-3)
    assert [e["dur"] for e in slices(events)] == pytest.approx([s.seconds * 1e6 for s in trace], abs=2e-3)


def test_an_arrow_from_each_send_to_its_receive(events, trace):
    assert len(trace.messages()) > 40
    ends = defaultdict(dict)
    on_track = defaultdict(list)
    last = {}
    for e in events:  # in the order of the file, as a viewer binds them
        if e["ph"] == "X":
            last[e["tid"]] = e
            on_track[e["tid"]].append(e)
        elif e["ph"] in "sf":
            within = last[e["tid"]]
            assert within["ts"] <= e["ts"] <= within["ts"] + within["dur"]
            assert within["name"] == {"s": "send", "f": "recv"}[e["ph"]]
            assert e["ph"] == "s" or e["bp"] == "e"
            ends[e["id"]][e["ph"]] = (e["ts"], within)
    assert len(ends) == len(trace.messages())
    for pair in ends.values():
        (left, sent), (came, received) = pair["s"], pair["f"]
        assert left <= came
        assert sent["args"]["peer"] == received["pid"]
        assert received["args"]["peer"] == sent["pid"]
        assert sent["args"].get("bytes", 0) == received["args"].get("bytes", 0)


def test_no_slice_of_the_same_thread_begins_between_a_message_and_its_arrow(events):
    # A viewer binds an arrow to the slice that began last before it.
    starts = defaultdict(list)
    begun = {}
    for e in events:
        if e["ph"] == "X":
            starts[e["tid"]].append(nanoseconds(e["ts"]))
            begun[e["tid"]] = nanoseconds(e["ts"])
        elif e["ph"] in "sf":
            assert not [t for t in starts[e["tid"]] if begun[e["tid"]] < t <= nanoseconds(e["ts"])]


def test_the_file_appears_whole_or_not_at_all(tmp_path):
    path = tmp_path / "t.json"
    Trace([Span(0, "main", "compute", 0.0, 1.0)], 1).save(path)
    before = path.read_bytes()
    for bad in (float("inf"), float("nan")):
        with pytest.raises(ArgumentError, match="not finite"):
            Trace([Span(0, "main", "compute", 0.0, bad)], 1).save(path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["t.json"]  # noqa: PTH208


@pytest.mark.parametrize("path", ["", "/"])
def test_a_path_without_a_name(path, trace, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match="cannot write the trace"):
        trace.save(path)
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(DataError, match=r"cannot write the trace .*nowhere.*No such file"):
        Trace([], 1).save(tmp_path / "nowhere" / "t.json")


def test_a_file_that_cannot_even_be_looked_for(tmp_path):
    (tmp_path / "file").touch()
    for path, why in (("file/t.json", "Not a directory"), (f"{'t' * 300}.json", "File name too long")):
        with pytest.raises(DataError, match=rf"cannot write the trace .*: {why}"):
            Trace([], 1).save(tmp_path / path)


HEAD = '{"otherData":{"format":"simdist trace 1","ranks":2},"traceEvents":['


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "is not a trace"),
        ("hello", "is not a trace"),
        ("[]", "is not a trace"),
        ("null", "is not a trace"),
        ("{}", "has no 'otherData'"),
        ('{"traceEvents":[]}', "has no 'otherData'"),
        ('{"traceEvents":[{"ph":"X","name":"main","pid":1,"tid":1,"ts":0,"dur":1}]}', "has no 'args'"),
        ('{"otherData":{"format":"chrome","ranks":1},"traceEvents":[]}', "its format is 'chrome'"),
        ('{"otherData":{"format":"simdist trace 1","ranks":"many"},"traceEvents":[]}', "number of ranks is 'many'"),
        ('{"otherData":{"format":"simdist trace 1","ranks":0},"traceEvents":[]}', "number of ranks is 0"),
        (HEAD, "is not a trace"),
        (HEAD + '{"ph":"X","name":"a","pid":2,"args":{"stream":"main","start_s":0,"end_s":1}}]}', "rank 2"),
        (
            HEAD + '{"ph":"X","name":"a","pid":0,"args":{"stream":"main","start_s":"x","end_s":1}}]}',
            "could not convert",
        ),
        (HEAD + '{"ph":"X","name":7,"pid":0,"args":{"stream":"main","start_s":0,"end_s":1}}]}', "is not a trace"),
        (HEAD + '{"ph":"X","name":"a","pid":0,"args":{"stream":"a","start_s":0,"end_s":NaN}}]}', "from 0.0 s to nan s"),
        (HEAD + '{"ph":"X","name":"a","pid":0,"args":{"stream":"a","start_s":-1e308,"end_s":1}}]}', "from -1e.308 s"),
        (
            HEAD + '{"ph":"X","name":"a","pid":0,"args":{"stream":"a","start_s":2,"end_s":1}}]}',
            "ends at 1.0 s, before its start at 2.0 s",
        ),
        (
            '{"otherData":{"format":"simdist trace 1","ranks":1000000000},"traceEvents":[]}',
            "number of ranks is 1000000000, but it has only 0 events",
        ),
        (
            HEAD + '{"ph":"X","name":"send","pid":0,"args":{"stream":"a","start_s":0,"end_s":1,"peer":7}}]}',
            "a message of rank 7, but its ranks are 0 to 1",
        ),
        (
            HEAD + '{"ph":"X","name":"a","pid":0,"args":{"stream":"a","start_s":0,"end_s":1,"bytes":1e999}}]}',
            "infinity to integer",
        ),
        ("[" * 100_000, "is not a trace"),
    ],
)
def test_foreign_files(tmp_path, text, fault):
    path = tmp_path / "t.json"
    path.write_text(text)
    with pytest.raises(DataError, match=fault):
        Trace.load(path)


def test_bytes_that_are_no_text(tmp_path):
    path = tmp_path / "t.json"
    path.write_bytes(b"\xff\xfe\x00{")
    with pytest.raises(DataError, match="is not a trace"):
        Trace.load(path)


def test_a_missing_file(tmp_path):
    with pytest.raises(DataError, match=r"cannot read the trace .*t\.json: No such file"):
        Trace.load(tmp_path / "t.json")


def test_a_file_that_another_tool_has_written_again_is_still_read(tmp_path, trace):
    path = tmp_path / "t.json"
    trace.save(path)
    path.write_text(json.dumps(json.loads(path.read_text()), indent=2, sort_keys=True))
    assert Trace.load(path).spans == trace.spans


def test_ten_thousand_receives_at_once(tmp_path):
    rng = random.Random(2)
    record = [Span(0, "main", "recv", rng.random(), 2 + rng.random(), 1, 1) for _ in range(10_000)]
    path = tmp_path / "t.json"
    chrome.write(record, 2, path)
    assert chrome.read(path) == (record, 2)
