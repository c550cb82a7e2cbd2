"""The configuration of the file_storage extension."""

import re
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field

from otel_zernel.component import ComponentConfig
from otel_zernel.types import Duration, PositiveDuration, Section

Count = Annotated[int, Field(ge=0)]


def _permissions(text: str) -> str:
    if not re.fullmatch(r"0?[0-7]{3}", text):
        raise ValueError(f'{text!r} are not directory permissions; write them in octal and quoted, like "0750"')
    return text


class CompactionConfig(Section):
    """Accepted from configurations of the OpenTelemetry Collector. No key has an effect."""

    directory: Path | None = None
    on_start: bool = False
    on_rebound: bool = False
    rebound_needed_threshold_mib: Count = 100
    rebound_trigger_threshold_mib: Count = 10
    max_transaction_size: Count = 65536
    check_interval: PositiveDuration = 5.0
    cleanup_on_start: bool = False


class FileStorageConfig(ComponentConfig):
    """Where and how to keep data. Names and defaults are those of the OpenTelemetry Collector, but for `fsync`."""

    directory: Path = Path("/var/lib/otelcol/file_storage")
    """The directory of the data. One collector uses it at a time."""
    create_directory: bool = False
    """Create the directory if it is missing."""
    directory_permissions: Annotated[str, AfterValidator(_permissions)] = "0750"
    """The permissions of a directory that is created, in octal."""
    timeout: Duration = 1.0
    """Seconds to wait for another collector that still uses the directory."""
    fsync: bool = True
    """Whether a batch is accepted only when it is on the disk. If not, a power failure loses the last seconds."""
    max_size: Count = 0
    """The most bytes of each component's queue on the disk; 0 for no limit. A full queue refuses new batches."""
    compaction: CompactionConfig | None = None
    """Accepted, without effect: files are deleted when all their batches are delivered."""
    recreate: bool = False
    """Accepted, without effect: damaged data never stop the start."""
