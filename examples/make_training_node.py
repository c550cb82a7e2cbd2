"""Makes training_node.csv: 16 seconds of an 8-GPU node in training, in dcgm-exporter's long CSV layout.

Besides DCGM's fields the file has rows with CUDA launch latencies and with the waits at the end of every step, in
seconds. It contains a stall of the data loader, a checkpoint, and a GPU that is throttled because of its temperature,
so that all others wait for it. `python examples/make_training_node.py` writes the same bytes every time.
"""

import csv
import io
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

COLUMNS = (
    *("timestamp", "metric_name", "gpu_id", "device", "uuid", "modelName", "Hostname"),
    *("container", "pod", "namespace", "value", "labels_raw"),
)
START = datetime(2026, 1, 15, 8, 0, tzinfo=UTC)
SECONDS = 16
DATA_STALL = range(5, 6)
CHECKPOINT = range(10, 12)

HOST = "train-node-01"
MODEL = "NVIDIA H100 80GB HBM3"
DRIVER = "535.129.03"
GPUS = 8
THROTTLED = 5
MEMORY_MIB = 81_007

LAUNCHES = 20
"""Sampled launches per GPU per second."""
STEPS = 2
"""Training steps per second."""


@dataclass(slots=True)
class Gpu:
    """One GPU and its state, which changes every second."""

    index: int
    uuid: str
    temperature: float
    energy_mj: int
    load: float = 0.0

    @property
    def throttled(self) -> bool:
        return self.index == THROTTLED

    def advance(self, second: int, random: Random) -> None:
        """Advances by one second. The temperature follows the load slowly."""
        self.load = min(1.0, max(0.0, _load(second) + random.gauss(0, 0.015)))
        hottest = 86 if self.throttled else 64 + self.index
        self.temperature += 0.3 * (35 + (hottest - 35) * self.load - self.temperature)
        self.energy_mj += round(self.power * 1000)

    @property
    def power(self) -> float:
        """Power in W. An idle H100 uses about 115 W, a busy one at most 700 W."""
        return 115 + (430 if self.throttled else 570) * self.load

    def fields(self, random: Random) -> dict[str, str]:
        """The fields of DCGM in its units: percent, MiB, degrees Celsius, W, MHz, mJ."""
        used = 71_400 + 40 * self.index + round(1500 * self.load)
        return {
            "DCGM_FI_DEV_GPU_UTIL": str(round(100 * self.load)),
            "DCGM_FI_DEV_MEM_COPY_UTIL": str(round(46 * self.load + random.uniform(0, 3))),
            "DCGM_FI_DEV_FB_USED": str(used),
            "DCGM_FI_DEV_FB_FREE": str(MEMORY_MIB - used),
            "DCGM_FI_DEV_GPU_TEMP": str(round(self.temperature)),
            "DCGM_FI_DEV_POWER_USAGE": f"{self.power:.3f}",
            "DCGM_FI_DEV_SM_CLOCK": "1410" if self.throttled and self.load > 0.5 else "1980",
            "DCGM_FI_DEV_MEM_CLOCK": "2619",
            "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": str(self.energy_mj),
        }

    def launch(self, random: Random) -> float:
        """A launch latency in s: about 6 us, but 1 % of the launches find the queue full and take longer."""
        slow = random.random() < 0.01
        return random.lognormvariate(-9.2 if slow else -12.02, 0.5 if slow else 0.25)

    def sync_wait(self, random: Random) -> float:
        """The wait in s at the end of a step for the slowest GPU."""
        return random.lognormvariate(-6.5 if self.throttled else -2.6, 0.2)


def _load(second: int) -> float:
    if second in DATA_STALL:
        return 0.35
    return 0.04 if second in CHECKPOINT else 0.97


def rows() -> Iterator[tuple[str, ...]]:
    """The rows of the file, in the order of time."""
    random = Random(8)
    gpus = [Gpu(index, _uuid(random), random.uniform(58, 64), random.randrange(10**12)) for index in range(GPUS)]
    for second in range(SECONDS):
        for gpu in gpus:
            gpu.advance(second, random)
        yield from _second(START + timedelta(seconds=second), gpus, random)


def _uuid(random: Random) -> str:
    return f"GPU-{uuid.UUID(int=random.getrandbits(128), version=4)}"


def _second(time: datetime, gpus: list[Gpu], random: Random) -> Iterator[tuple[str, ...]]:
    readings = [gpu.fields(random) for gpu in gpus]
    for name in readings[0]:
        for gpu, reading in zip(gpus, readings, strict=True):
            yield _row(time, name, gpu, reading[name])
    for gpu in gpus:
        for at in _spread(time, LAUNCHES):
            yield _row(at, "zernel.cuda.launch.latency", gpu, f"{gpu.launch(random):.9f}")
        for at in _spread(time, STEPS):
            yield _row(at, "zernel.distributed.sync.wait", gpu, f"{gpu.sync_wait(random):.9f}")


def _spread(time: datetime, count: int) -> Iterator[datetime]:
    return (time + timedelta(seconds=number / count) for number in range(count))


def _row(time: datetime, name: str, gpu: Gpu, value: str) -> tuple[str, ...]:
    stamp = time.isoformat(timespec="milliseconds" if time.microsecond else "seconds").replace("+00:00", "Z")
    device = f"nvidia{gpu.index}"
    labels = {
        "DCGM_FI_DRIVER_VERSION": DRIVER,
        "Hostname": HOST,
        "UUID": gpu.uuid,
        "__name__": name,
        "device": device,
        "gpu": str(gpu.index),
        "instance": f"{HOST}:9400",
        "job": "dgx_dcgm_exporter",
        "modelName": MODEL,
    }
    raw = ",".join(f'{label}="{text}"' for label, text in labels.items())
    return (stamp, name, str(gpu.index), device, gpu.uuid, MODEL, HOST, "", "", "", value, raw)


def training_node() -> str:
    """The whole file. Like dcgm-exporter's, it quotes every field except those of the header."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(COLUMNS)
    csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_ALL).writerows(rows())
    return text.getvalue()


if __name__ == "__main__":
    Path(__file__).with_name("training_node.csv").write_text(training_node(), encoding="utf-8")
