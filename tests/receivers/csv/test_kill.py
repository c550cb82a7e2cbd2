"""kill -9 at a random moment, with the real storage: no accepted row is lost, and few are repeated."""

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

BATCH = 50
PROGRAM = """
import asyncio, sys
from pathlib import Path
from otel_zernel.clock import SystemClock
from otel_zernel.testing import make_context
from otel_zernel_extensions.file_storage import FileStorageExtension
from tests.receivers.csv.running import receiver

folder = Path(sys.argv[1])
accepted = (folder / "accepted").open("ab", buffering=0)

async def emit(batch, *, transport=""):
    metric = batch.metrics.resource_metrics[0].scope_metrics[0].metrics[0]
    accepted.write(b"".join(b"%d\\n" % point.as_double for point in metric.gauge.data_points))

async def main():
    settings = {"directory": str(folder / "storage"), "create_directory": True}
    config = FileStorageExtension.Config.model_validate(settings)
    async with FileStorageExtension(config, make_context("extensions", "file_storage")) as storage:
        layout = {"timestamp": "t", "metric": "m", "value": "v"}
        files = [str(folder / "logs" / "*.csv")]
        context = make_context(id_="csv", clock=SystemClock(), extensions={"file_storage": storage})
        await receiver(
            context, files=files, layout=layout, follow=True, storage="file_storage", batch_size=BATCH
        ).run(emit)

asyncio.run(main())
""".replace("BATCH", str(BATCH))


class Killed:
    """A receiver in its own process, and the rows that it accepted."""

    def __init__(self, folder: Path, rows: int) -> None:
        self._folder = folder
        self._rows = rows
        self._accepted = folder / "accepted"
        self._accepted.touch()

    def run(self, ends: Callable[[], bool]) -> None:
        """Runs until `ends`, at most 60 s, and kills it."""
        root = Path(__file__).parents[3]
        paths = [str(root), *(str(root / kind) for kind in ("receivers", "extensions"))]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
        with subprocess.Popen([sys.executable, "-c", PROGRAM, str(self._folder)], env=environment) as process:
            latest = time.monotonic() + 60
            while not ends() and time.monotonic() < latest:
                assert process.poll() is None
                time.sleep(0.002)
            process.send_signal(signal.SIGKILL)

    def run_on(self, seconds: float) -> None:
        """Runs for `seconds` after the first new line, if there is one left."""
        before, whole = self.lines(), len(self.values()) >= self._rows
        since: list[float] = []

        def ends() -> bool:
            if not since and self.lines() > before:
                since.append(time.monotonic())
            return whole or (bool(since) and time.monotonic() - since[0] >= seconds)

        self.run(ends)

    def lines(self) -> int:
        return self._accepted.read_bytes().count(b"\n")

    def values(self) -> Counter[int]:
        """How often each value was accepted. A line that the kill tore is left out, as an exporter would."""
        *whole, _ = self._accepted.read_bytes().split(b"\n")
        return Counter(map(int, whole))


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("kills", "rows"), [(5, 1_500), pytest.param(300, 100_000, marks=pytest.mark.soak)])
def test_kills_lose_no_row_and_repeat_at_most_one_block_each(tmp_path: Path, kills: int, rows: int) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    for number in range(3):
        lines = (f"1752871354,x,{value}\n" for value in range(number, 3 * rows, 3))
        (logs / f"{number}.csv").write_text("t,m,v\n" + "".join(lines))
    killed, chance = Killed(tmp_path, 3 * rows), random.Random(1)
    for _ in range(kills):
        killed.run_on(chance.uniform(0, 0.05))
    killed.run(lambda: len(killed.values()) == 3 * rows)
    values = killed.values()
    repeated = sum(values.values()) - len(values)
    sys.stdout.write(f"{len(values)} rows, {kills} kills, {repeated} repeated\n")
    assert values.keys() == set(range(3 * rows))
    assert repeated <= kills * BATCH
