"""`make gpu-check`: compares the nvml receiver with `nvidia-smi -q -x` at the same time."""

import platform
import shutil
import subprocess
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

from otel_zernel.batch import Batch
from otel_zernel.clock import SystemClock
from otel_zernel.testing import make_context
from otel_zernel_receivers.nvml.config import NvmlConfig
from otel_zernel_receivers.nvml.driver.events import XidCounts
from otel_zernel_receivers.nvml.driver.library import NvmlLibrary, NvmlUnavailable
from otel_zernel_receivers.nvml.gpus.gpu import Gpu, GpuRegistry, count_gpus, find_gpu
from otel_zernel_receivers.nvml.points.metrics import METRICS
from tests.gpu.nvidia_smi import Comparison, compare

UNIQUE = {"hw.id", "hw.serial_number"}
"""These identify a single board, so the report does not show them."""
REPORT = Path(__file__).parents[2] / "docs" / "gpu_check.txt"


def main(report: Path = REPORT) -> int:
    """Prints the comparison and writes it to `report`. Returns 1 if a value differs, else 0, also without a GPU."""
    if (library := found_library()) is None:
        return 0
    xml, scrapes = measured(library)
    lines = list(table(compare(xml, scrapes)))
    text = (
        "\n".join([f"driver {library.driver_version}, {datetime.now(UTC):%Y-%m-%d}, nvidia-smi | receiver", *lines])
        + "\n"
    )
    print(text, end="")
    report.write_text(text)
    return int(any(line.startswith("DIFFERS") for line in lines))


def found_library() -> NvmlLibrary | None:
    """The library of the driver. Without it, or without nvidia-smi, one sentence is printed."""
    if not shutil.which("nvidia-smi"):
        print("Nothing to check: nvidia-smi is not installed; run this on a machine with an NVIDIA GPU.")
        return None
    try:
        return NvmlLibrary(lambda query, error: print(f"{query}: {error}"))
    except NvmlUnavailable as problem:
        print(f"Nothing to check: {problem}.")
        return None


def measured(library: NvmlLibrary) -> tuple[str, list[Batch]]:
    """The XML of nvidia-smi, and the scrapes before and after it."""
    gpus = found_gpus(library)
    before = Batch.join([gpu.scrape() for gpu in gpus])
    xml = subprocess.run(["nvidia-smi", "-q", "-x"], check=True, capture_output=True, text=True).stdout
    return xml, [before, Batch.join([gpu.scrape() for gpu in gpus])]


def found_gpus(library: NvmlLibrary) -> list[Gpu]:
    """All GPUs, with all metrics enabled."""
    config = NvmlConfig.model_validate({"metrics": {name: {"enabled": True} for name in METRICS}})
    context = make_context(clock=SystemClock())
    registry = GpuRegistry(config, context, XidCounts(context.clock.time_ns))
    listed = (find_gpu(library, index, platform.node()) for index in range(count_gpus(library)))
    return [registry.create(library, gpu) for gpu in listed if gpu]


def table(comparisons: Iterable[Comparison]) -> Iterable[str]:
    """A line per value, differences first."""
    rows = sorted(comparisons, key=lambda comparison: (comparison.agree, comparison.gpu))
    differing = sum(not row.agree for row in rows)
    yield f"{len(rows)} values, {differing} differ"
    for row in rows:
        verdict = "ok     " if row.agree else "DIFFERS"
        cells = (_cell(row.expected), _cell(row.received))
        if row.name in UNIQUE and row.agree:
            cells = ("equal", "equal")
        yield f"{verdict} {row.gpu[:12]} {row.name}: {' | '.join(cells)}"


def _cell(value: float | str | None) -> str:
    return "-" if value is None else f"{value:.12g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    sys.exit(main(*map(Path, sys.argv[1:])))
