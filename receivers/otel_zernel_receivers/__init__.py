"""The receivers that come with otel-zernel, a folder each."""
