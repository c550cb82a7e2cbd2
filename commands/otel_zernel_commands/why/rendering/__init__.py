"""The report as text and as a page, and its stacks and steps as files. `as_json` has it as JSON."""

from otel_zernel_commands.why.rendering.flames import folded, pprof_file
from otel_zernel_commands.why.rendering.page import page
from otel_zernel_commands.why.rendering.perfetto import perfetto_trace
from otel_zernel_commands.why.rendering.text import report_text
from otel_zernel_commands.why.terminal import Terminal

__all__ = ["Terminal", "folded", "page", "perfetto_trace", "pprof_file", "report_text"]
