"""Changes of labels: Prometheus' relabelling rules, and the mapping of names to OpenTelemetry's."""
