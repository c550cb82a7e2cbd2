"""The report as text and as a page, and its stacks and steps as files. `as_json` has it as JSON."""

from otel_zernel_commands.why.rendering.flames import folded as folded
from otel_zernel_commands.why.rendering.flames import pprof_file as pprof_file
from otel_zernel_commands.why.rendering.page import page as page
from otel_zernel_commands.why.rendering.perfetto import perfetto_trace as perfetto_trace
from otel_zernel_commands.why.rendering.text import report_text as report_text
from otel_zernel_commands.why.terminal import Terminal as Terminal
