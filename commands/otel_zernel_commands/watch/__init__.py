"""The command `otel-zernel watch`: a terminal view of a training."""

from otel_zernel_commands.watch.command import WatchCommand as WatchCommand
