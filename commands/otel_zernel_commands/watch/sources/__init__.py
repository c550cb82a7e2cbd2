"""Where the state comes from: a collector, the older WebSocket feed, a recording, or this machine."""

from otel_zernel_commands.watch.sources.choosing import SourceOptions as SourceOptions
from otel_zernel_commands.watch.sources.choosing import source_of as source_of
from otel_zernel_commands.watch.sources.watch_source import WatchSource as WatchSource
