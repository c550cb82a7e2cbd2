"""The extensions of otel-zernel, one folder each."""
