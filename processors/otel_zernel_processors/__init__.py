"""The processors that come with otel-zernel, a folder each."""
