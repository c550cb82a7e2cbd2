"""Shows on the terminal what flows through a pipeline."""

from otel_zernel_exporters.debug.exporter import DebugExporter

__all__ = ["DebugExporter"]
