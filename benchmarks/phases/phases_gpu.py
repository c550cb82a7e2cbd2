"""The phases of training loops on a real GPU, compared with the loops' own record.

Needs root, Linux 6.13, a GPU and PyTorch with CUDA. All loops of `training/on_gpu.py` start together, and then run one
after the other, under the ebpf and nvml receivers. A loop without a DataLoader has phases by signals only, so its
seconds in each phase are compared with its record, not its single moments.
"""

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

from benchmarks import BenchmarkRow
from benchmarks.phases.real_loops import DDP, PHASES_OF, ReportedPhases, phases_of, score
from benchmarks.training.runs import ROOT, Truth, shifted
from benchmarks.training.watched_training import why_not
from otel_zernel.batch import Batch, points
from otel_zernel.clock import SystemClock
from otel_zernel.component import Kind, Processor, Receiver
from otel_zernel.registry import Registry
from otel_zernel.testing import Downstream, make_context

LOOPS = (
    "GPU, loss read every step",
    "GPU, loss read every 10 steps",
    "GPU, 2 workers, pinned",
    "GPU, torch.compile",
    "GPU, CUDA graph",
    "GPU, NCCL by hand",
    "GPU, NCCL, DDP",
    "GPU, transformers",
    "GPU, Lightning",
    "GPU, no DataLoader",
)
NO_LOADER = "GPU, no DataLoader"
READY_S, ATTACHED_S, LOOP_S, SETTLE_S = 120.0, 12.0, 60.0, 4.0
"""Most time to start all loops, time to attach to them, most time of one loop, and time to emit the last spans."""
BAR = 0.98
"""The target for the agreement."""
CONFIGS: dict[str, dict[str, object]] = {
    "ebpf": {"interval": "250ms", "rescan_interval": "1s", "max_overhead": 0},
    "nvml": {"collection_interval": "1s"},
}


def run() -> list[BenchmarkRow]:
    """A row per loop."""
    if reason := why_not() or _no_gpu():
        return [BenchmarkRow("phases: loops on a GPU", f"skipped: {reason}")]
    batches, truths, failed = asyncio.run(watch(LOOPS))
    if folder := os.environ.get("OUT"):
        keep(Path(folder), batches, truths)
    traces = phases_of(batch.copy() for batch in batches)
    rows = [_row(name, traces, batches, truth) for name, truth in truths.items()]
    return [*rows, *(BenchmarkRow(f"phases: {name}", f"failed: {why}") for name, why in failed.items())]


def _no_gpu() -> str | None:
    question = "import sys, torch; sys.exit(not torch.cuda.is_available())"
    return "no GPU" if subprocess.run([sys.executable, "-c", question], check=False).returncode else None


def _row(name: str, traces: Mapping[int, ReportedPhases], batches: list[Batch], truth: Truth) -> BenchmarkRow:
    if name == NO_LOADER:
        return _seconds_row(name, batches, truth)
    expected = DDP if "DDP" in name else PHASES_OF
    agreement = score(traces.get(truth["pid"], ReportedPhases()), truth, expected).agreement
    return BenchmarkRow(f"phases: {name}: agreement", f"{agreement:.2%}", f">= {BAR:.0%}", agreement >= BAR)


def _seconds_row(name: str, batches: list[Batch], truth: Truth) -> BenchmarkRow:
    true: dict[str, float] = defaultdict(float)
    for mark, start, end in truth["marks"]:
        true[next(iter(PHASES_OF[mark]))] += (end - start) / 1e9
    ours = {phase: seconds for phase, seconds in _seconds_by_phase(batches, truth).items() if seconds}
    phases = sorted(true.keys() | ours.keys())
    return BenchmarkRow(
        f"phases: {name}: ours (true)",
        ", ".join(f"{phase} {ours.get(phase, 0.0):.2f} ({true.get(phase, 0.0):.2f}) s" for phase in phases),
    )


def _seconds_by_phase(batches: Iterable[Batch], truth: Truth) -> dict[str, float]:
    """The seconds that the processor counts in each phase during the loop."""
    processor = _component("processors", "phases", {"interval": "250ms", "signals": {"stability": 0}})
    assert isinstance(processor, Processor)
    counted: dict[str, list[tuple[int, float]]] = defaultdict(list)
    made = [out for batch in batches for out in processor.process(batch.copy()) if isinstance(out, Batch)]
    for batch in [*made, *processor.flush()]:
        for resource in batch.metrics.resource_metrics if batch.metrics else ():
            for metric in (metric for scope in resource.scope_metrics for metric in scope.metrics):
                for point in points(metric) if metric.name == "zernel.phase.time" else ():
                    about = {attribute.key: attribute.value for attribute in point.attributes}
                    if about["process.pid"].int_value == truth["pid"]:
                        counted[about["zernel.phase"].string_value].append((point.time_unix_nano, point.as_double))
    begin, end = truth["loop"]
    return {phase: _at(values, end) - _at(values, begin) for phase, values in counted.items()}


def _at(values: list[tuple[int, float]], time_ns: int) -> float:
    return max((value for at, value in values if at <= time_ns + 250_000_000), default=0.0)


async def watch(names: Iterable[str]) -> tuple[list[Batch], dict[str, Truth], dict[str, str]]:
    """The batches of the receivers, the record of each loop, and the reason of each loop that failed."""
    downstream, offset = Downstream(), time.time_ns() - time.monotonic_ns()
    with tempfile.TemporaryDirectory() as made:
        folders = {name: Path(made) / str(number) for number, name in enumerate(names)}
        running = {name: await _start(name, folder) for name, folder in folders.items()}
        receivers = [_component("receivers", name, config) for name, config in CONFIGS.items()]
        watching = [
            asyncio.create_task(receiver.run(downstream)) for receiver in receivers if isinstance(receiver, Receiver)
        ]
        for name, process in running.items():
            await _until(process, folders[name] / "ready", READY_S)
        await asyncio.sleep(ATTACHED_S)
        for name, process in running.items():
            (folders[name] / "go").touch()
            await _until(process, folders[name] / "truth.0.json", LOOP_S)
        await asyncio.sleep(SETTLE_S)
        for task in watching:
            task.cancel()
        await asyncio.gather(*watching, return_exceptions=True)
        for process in running.values():
            if process.returncode is None:
                process.kill()
            await process.wait()
        truths = {name: _truth(folder, offset) for name, folder in folders.items()}
        failed = {name: _last_line(folders[name] / "log") for name, truth in truths.items() if truth is None}
    return downstream.batches, {name: truth for name, truth in truths.items() if truth}, failed


def _component(kind: Kind, name: str, config: dict[str, object]) -> object:
    cls = Registry.installed().load(kind, name)
    return cls(cls.Config.model_validate(config), make_context(kind, name, clock=SystemClock()))


async def _start(name: str, folder: Path) -> asyncio.subprocess.Process:
    folder.mkdir()  # noqa: ASYNC240  # before anything is measured
    program = [sys.executable, "-m", "benchmarks.training.on_gpu", name, str(folder)]
    with (folder / "log").open("wb") as log:
        return await asyncio.create_subprocess_exec(*program, cwd=ROOT, stdout=log, stderr=log, env=_environment())


def _environment() -> dict[str, str]:
    return {**os.environ, "NCCL_SOCKET_IFNAME": "lo", "HF_HUB_OFFLINE": "1"}


async def _until(process: asyncio.subprocess.Process, file: Path, seconds: float) -> None:
    """Waits until the file exists, the process has ended, or the time is over."""
    patient_until = time.monotonic() + seconds
    while process.returncode is None and time.monotonic() < patient_until:  # another process writes it
        if file.exists():  # noqa: ASYNC240
            return
        await asyncio.sleep(0.05)


def _truth(folder: Path, offset: int) -> Truth | None:
    file = folder / "truth.0.json"
    return shifted(json.loads(file.read_text()), offset) if file.exists() else None


def _last_line(log: Path) -> str:
    return (log.read_text("utf-8", "replace").strip().splitlines() or ["no output"])[-1]


def keep(folder: Path, batches: list[Batch], truths: dict[str, Truth]) -> None:
    """Writes the batches and the records, to be looked at later."""
    import pickle  # of the project's own bytes

    parts = [(batch.bytes_of("metrics"), batch.bytes_of("traces")) for batch in batches]
    (folder / "batches.pickle").write_bytes(pickle.dumps(parts))
    (folder / "truths.json").write_text(json.dumps(truths))
