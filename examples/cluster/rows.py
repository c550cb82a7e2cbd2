"""The rows that the streamers read: one reading of a GPU each, with a value that no other row has."""

import csv
from datetime import UTC, datetime, timedelta
from pathlib import Path

GPUS = 16
_HEADER = ("timestamp", "metric_name", "gpu_id", "device", "uuid", "Hostname", "value")


def write_rows(path: Path, count: int) -> None:
    """Writes a file with so many rows, as dcgm-exporter has them. The value of each row is its number."""
    start = datetime.now(UTC) - timedelta(hours=1)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(_HEADER)
        for number in range(count):
            time, gpu = start + timedelta(seconds=number // GPUS * 0.1), number % GPUS
            host = f"node-{gpu // 8}"
            writer.writerow(
                (time.isoformat(), "DCGM_FI_DEV_POWER_USAGE", gpu, f"nvidia{gpu}", f"GPU-{gpu}", host, number)
            )
