"""The configuration of the csv exporter."""

from pathlib import Path

from otel_zernel.component import ComponentConfig


class CsvConfig(ComponentConfig):
    """Where to write."""

    path: Path
    """The file to write."""
    append: bool = False
    """Continue an existing file; else it is emptied at start."""
