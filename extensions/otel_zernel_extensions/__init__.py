"""The extensions that come with otel-zernel, a folder each."""
