"""The commands that come with otel-zernel beside those of the core, a folder each."""
