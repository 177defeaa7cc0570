"""The record of a run: its spans, and their analysis."""

from simdist.trace.recorder import Recorder
from simdist.trace.span import Span
from simdist.trace.trace import Trace

__all__ = ["Recorder", "Span", "Trace"]
