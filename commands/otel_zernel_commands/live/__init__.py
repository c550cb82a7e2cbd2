"""`otel-zernel live`: the live page of this machine, or of a recorded run."""

from otel_zernel_commands.live.command import LiveCommand as LiveCommand
