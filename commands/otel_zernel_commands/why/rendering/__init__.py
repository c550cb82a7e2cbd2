"""The report as text, as JSON and as a page."""

from otel_zernel_commands.why.rendering.as_json import report_json, report_tree
from otel_zernel_commands.why.rendering.flames import folded, pprof_file
from otel_zernel_commands.why.rendering.page import page
from otel_zernel_commands.why.rendering.perfetto import perfetto_trace
from otel_zernel_commands.why.rendering.style import Terminal
from otel_zernel_commands.why.rendering.text import report_text

__all__ = ["Terminal", "folded", "page", "perfetto_trace", "pprof_file", "report_json", "report_text", "report_tree"]
