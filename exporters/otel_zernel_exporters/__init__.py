"""The exporters that come with otel-zernel, a folder each."""
