"""The configuration of the csv exporter."""

from pathlib import Path

from otel_zernel.component import ComponentConfig


class CsvExporterConfig(ComponentConfig):
    """The file to write."""

    path: Path
    """The path of the file. Its directory must exist."""
    append: bool = False
    """Append to an existing file. Else it is emptied at start."""
