"""`otel-zernel why`: says in one sentence why the training on this machine is slow, with the evidence."""

from otel_zernel_commands.why.assistant import McpCommand as McpCommand
from otel_zernel_commands.why.command import WhyCommand as WhyCommand
from otel_zernel_commands.why.demo import DemoCommand as DemoCommand
