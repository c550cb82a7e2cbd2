"""The report for an assistant: tools of the Model Context Protocol."""

from otel_zernel_commands.why.assistant.command import McpCommand as McpCommand
