"""Records the simulated job, as the exporter `file` writes it with `format: proto` and `compression: zstd`.

`python -m examples.simulated_job.recording` writes the recording of `otel-zernel demo`.
"""

import random
from collections.abc import Iterator
from pathlib import Path

import zstandard

from examples.simulated_job.__main__ import SimulatedJob
from examples.simulated_job.training import SECOND

DEMO = Path(__file__).parents[2] / "commands/otel_zernel_commands/why/demo.otlp.zst"
SECONDS = 12
_START_NS = 1_800_000_000 * SECOND
_LEVEL = 19
"""The smallest files: the demo is a part of the wheel."""


def messages() -> Iterator[bytes]:
    """The same every time: spans and metrics of each second, as OTLP."""
    random.seed(1)
    job = SimulatedJob(_START_NS)
    for second in range(1, SECONDS + 1):
        for request in job.read(_START_NS + second * SECOND):
            yield request.SerializeToString(deterministic=True)


def write(path: Path) -> None:
    """Writes the recording."""
    compressor = zstandard.ZstdCompressor(_LEVEL)
    with path.open("wb") as file:
        for message in messages():
            compressed = compressor.compress(message)
            file.write(len(compressed).to_bytes(4, "big") + compressed)


if __name__ == "__main__":
    write(DEMO)
