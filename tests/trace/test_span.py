from simdist.trace import Span


def test_what_a_span_of_no_message_and_no_micro_batch_has():
    span = Span(0, "main", "compute", 1.0, 3.5)
    assert (span.bytes, span.peer, span.tag, span.context, span.micro_batch, span.detail) == (0, -1, 0, "", -1, "")
    assert span.seconds == 2.5
