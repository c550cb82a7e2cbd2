"""`otel-zernel api`: the REST gateway of a store."""

from otel_zernel_commands.api.command import ApiCommand as ApiCommand
