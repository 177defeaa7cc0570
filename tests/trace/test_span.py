from simdist.trace import Span
from simdist.trace.recorder import Recorder


def test_what_a_span_of_no_message_and_no_micro_batch_has():
    span = Span(0, "main", "compute", 1.0, 3.5)
    assert (span.bytes, span.peer, span.tag, span.context, span.micro_batch, span.detail) == (0, -1, 0, "", -1, "")
    assert span.seconds == 2.5


def test_what_nobody_tells_a_recorder_is_what_a_span_has():
    recorder = Recorder(3)
    recorder.add("main", "compute", 1.0, 3.5)
    assert recorder.spans() == [Span(3, "main", "compute", 1.0, 3.5)]
