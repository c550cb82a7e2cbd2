"""The collector as a process of its own."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psutil
import yaml

ROOT: Final = Path(__file__).parent.parent
_COMMAND: Final = (sys.executable, "-m", "otel_zernel", "run")
_PATIENCE: Final = 60.0
"""Seconds."""


@dataclass(frozen=True, slots=True)
class Collector:
    """A running collector. Its folder has `config.yaml` and `log`."""

    folder: Path
    process: psutil.Popen

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    async def ended(self) -> int | None:
        """The exit status, as soon as it has ended by itself."""
        return await asyncio.to_thread(self.process.wait, _PATIENCE)

    async def listens(self, *ports: int) -> None:
        """Returns when it accepts connections on these ports of localhost. Raises an error with its log if it ends."""
        async with asyncio.timeout(_PATIENCE):
            for port in ports:
                while not await _accepts(port):
                    if self.process.poll() is not None:
                        raise RuntimeError(self.log)
                    await asyncio.sleep(0.05)


async def _accepts(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except ConnectionRefusedError:
        return False
    writer.close()
    return True


def finite_run(config: str | Path, *overrides: str, seconds: float = 60) -> "subprocess.CompletedProcess[str]":
    """A run from the root of the repository until the data ends. It must end with 0, and log no error."""
    options = [part for override in overrides for part in ("--set", override)]
    command = [*_COMMAND, "--exit-when-done", "--config", str(config), *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=seconds, check=False)
    assert (done.returncode, "error" in done.stderr) == (0, False), done.stderr
    return done


@contextmanager
def running_collector(
    folder: Path,
    config: Mapping[str, Any] | str,
    *options: str,
    wrapper: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
    end: signal.Signals = signal.SIGTERM,
) -> Iterator[Collector]:
    """A collector that gets the signal `end`, unless it has ended before. It must then end within a minute, with 0 or,
    after a loss, with 1, and its log must have no traceback.

    A `config` that is no text has no metrics of the collector itself, unless it asks for them.
    """
    folder.mkdir(exist_ok=True)
    if not isinstance(config, str):
        service = {"telemetry": {"metrics": {"level": "none"}}, **config.get("service", {})}
        config = yaml.safe_dump({**config, "service": service})
    path = folder / "config.yaml"
    path.write_text(config)
    command = [*wrapper, *_COMMAND, *options, "--config", str(path)]
    with (folder / "log").open("wb") as log:
        process = psutil.Popen(command, stdout=log, stderr=log, env={**os.environ, **(environ or {})})
    running = Collector(folder, process)
    try:
        yield running
    finally:
        ends_by_itself = process.poll() is not None
        if not ends_by_itself:
            process.send_signal(end)
        try:
            process.wait(_PATIENCE)
        except psutil.TimeoutExpired:
            running.kill()
    assert "Traceback" not in running.log, running.log
    assert ends_by_itself or end == signal.SIGKILL or process.returncode in (0, 1), running.log


@asynccontextmanager
async def collector(
    folder: Path,
    config: Mapping[str, Any] | str,
    *ports: int,
    options: Sequence[str] = (),
    wrapper: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
) -> AsyncIterator[Collector]:
    """The same as soon as it listens on these ports. The loop goes on while it stops: a test may be its backend."""
    starting = running_collector(folder, config, *options, wrapper=wrapper, environ=environ)
    running = starting.__enter__()
    try:
        await running.listens(*ports)
        yield running
    finally:
        await asyncio.to_thread(starting.__exit__, *sys.exc_info())
