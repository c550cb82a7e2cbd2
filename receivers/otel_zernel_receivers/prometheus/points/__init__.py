"""From the samples of a page to OTLP."""
