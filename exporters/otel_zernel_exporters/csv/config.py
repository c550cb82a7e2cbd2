"""The configuration of the csv exporter."""

from pathlib import Path

from otel_zernel.component import ComponentConfig
from otel_zernel.types import Permissions
from otel_zernel_libraries.files.writing import OWNER_AND_GROUP


class CsvExporterConfig(ComponentConfig):
    """The file to write."""

    path: Path
    """The path of the file. Its directory must exist."""
    append: bool = False
    """Append to an existing file. Else it is emptied at start."""
    file_permissions: Permissions = OWNER_AND_GROUP
    """The permissions of the file if it is created, in octal. The umask applies too."""
