"""`otel-zernel why`: says in one sentence why the training on this machine is slow, with the evidence."""

from otel_zernel_commands.why.assistant import McpCommand
from otel_zernel_commands.why.command import WhyCommand
from otel_zernel_commands.why.demo import DemoCommand

__all__ = ["DemoCommand", "McpCommand", "WhyCommand"]
