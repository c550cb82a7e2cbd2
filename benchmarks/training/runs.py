"""Runs of the loops of `truth.py`, live under the eBPF receiver or recorded: their spans and their true phases.

`python -m benchmarks.training.runs [SCENARIO ...]`, as root, records one run of each scenario again. It also takes the
causes of PLANTED, whose loops know the ends of their steps only. The machine must be quiet.
"""

import asyncio
import gzip
import importlib.util
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any
from uuid import uuid4

import psutil
from opentelemetry.proto.logs.v1.logs_pb2 import LogsData, ResourceLogs
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData, ResourceMetrics
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, Span, TracesData

from benchmarks.training.scenarios import PLANTED, PLANTED_STEPS, SCENARIOS
from otel_zernel.batch import Batch
from otel_zernel.clock import SystemClock
from otel_zernel.component import Receiver
from otel_zernel.otlp.json import parse_json, to_json
from otel_zernel.registry import Registry
from otel_zernel.testing import Downstream, make_context
from otel_zernel_libraries.training import semconv
from otel_zernel_libraries.training.library_folders import path_in_library
from otel_zernel_libraries.training.stacks import STACKS, CodeLine
from otel_zernel_processors.phases.intake.inputs import FACTS
from otel_zernel_receivers.ebpf.emit.stacks import INTERVAL_NS
from tests.receivers.ebpf.standin import build

SETTLE_S = 3.0
"""Maximum time for the receiver to emit the last spans, which it does when the process ends."""
PATIENCE_S = 60.0
"""Maximum time for the receiver to find a new process."""
LONGEST_RUN_S = 600.0
"""Maximum time of a training program. The longest scenario takes a minute on a quiet machine."""
MARK = "ZERNEL_WATCHED_RUN"
"""The environment variable that separates the processes of a run from other jobs on the machine."""
OUTPUT = 2_000
"""Characters of a failed program's output in the error."""
ROOT = Path(__file__).parents[2]
RECORDED = ROOT / "tests/processors/phases/recorded"

Truth = dict[str, Any]
Run = tuple[list[Batch], list[Truth]]
"""The batches of spans, and the true phases of each rank, in the clock of the spans."""
Source = Callable[[str], Run]


def source() -> tuple[str, Source]:
    """The live receiver if it works here, else the recordings."""
    if "ebpf" not in Registry.installed().aliases("receivers") or os.geteuid() != 0:
        return "recorded", recorded
    if importlib.util.find_spec("torch") is None or shutil.which("cc") is None:
        return "recorded", recorded
    return "live", live


def recorded(name: str) -> Run:
    """A recorded scenario or planted cause."""
    spans, truths = (gzip.decompress(path.read_bytes()) for path in _paths(name))
    return list(map(_batch_of, spans.splitlines())), json.loads(truths)


def record(name: str) -> None:
    """Runs a scenario or a planted cause once, and saves it."""
    batches, truths = live_planted(name, PLANTED_STEPS[name], PLANTED[name]) if name in PLANTED else live(name)
    pids = {truth["pid"] for truth in truths}
    spans, truth = _paths(name)
    spans.parent.mkdir(exist_ok=True)
    lines = (line + b"\n" for batch in batches for line in _lines(batch, pids))
    spans.write_bytes(gzip.compress(b"".join(lines), mtime=0))
    truth.write_bytes(gzip.compress(json.dumps(truths).encode(), mtime=0))


def _lines(batch: Batch, pids: Collection[int]) -> Iterator[bytes]:
    """The spans of a batch, the facts, or the stacks in it, as OTLP in JSON."""
    if batch.spans and (spans := _kept_spans(batch.spans, pids)).resource_spans:
        yield to_json(spans)
    if batch.metrics and (facts := _kept_facts(batch.metrics, pids)).resource_metrics:
        yield to_json(facts)
    if batch.logs and (stacks := _kept_stacks(batch.logs, pids)).resource_logs:
        yield to_json(stacks)


def _batch_of(line: bytes) -> Batch:
    if line.startswith(b'{"resourceMetrics"'):
        return Batch(metrics=parse_json(MetricsData, line))
    if line.startswith(b'{"resourceLogs"'):
        return Batch(logs=parse_json(LogsData, line))
    return Batch(spans=parse_json(TracesData, line))


def _kept_spans(spans: TracesData, pids: Collection[int]) -> TracesData:
    """The spans of these processes."""
    kept = TracesData(resource_spans=[resource for resource in spans.resource_spans if pid_of(resource) in pids])
    for resource in kept.resource_spans:
        _rename_host(resource)
        for span in (span for scope in resource.scope_spans for span in scope.spans):
            span.ClearField("trace_id")
            span.ClearField("span_id")
    return kept


def _kept_facts(metrics: MetricsData, pids: Collection[int]) -> MetricsData:
    """The facts about these processes."""
    kept = MetricsData()
    for resource in metrics.resource_metrics:
        facts = [metric for scope in resource.scope_metrics for metric in scope.metrics if metric.name in FACTS]
        if facts and pid_of(resource) in pids:
            of_process = kept.resource_metrics.add(resource=resource.resource)
            of_process.scope_metrics.add(metrics=facts)
            _rename_host(of_process)
    return kept


def _kept_stacks(logs: LogsData, pids: Collection[int]) -> LogsData:
    """The stacks of these processes, without the folders of this machine."""
    kept = LogsData()
    for resource in logs.resource_logs:
        records = [record for scope in resource.scope_logs for record in scope.log_records]
        stacks = [record for record in records if record.event_name == semconv.PROCESS_STACKS]
        if stacks and pid_of(resource) in pids:
            of_process = kept.resource_logs.add(resource=resource.resource)
            of_process.scope_logs.add(log_records=stacks)
            _rename_host(of_process)
            for record in of_process.scope_logs[0].log_records:
                read = STACKS.read(record.body)
                record.body.CopyFrom(STACKS.write(replace(read, lines=tuple(map(_moved, read.lines)))))
    return kept


def _moved(line: CodeLine) -> CodeLine:
    """The line in the folders of some other machine."""
    path = path_in_library(line)
    if path:
        folder = "/venv/lib/python3.11/site-packages" if "-packages/" in line.file else "/usr/lib/python3.11"
        return replace(line, file=f"{folder}/{path}")
    return replace(line, file=line.file.replace(str(ROOT / "benchmarks/training/planted.py"), "/home/me/run/train.py"))


def _rename_host(resource: ResourceSpans | ResourceMetrics | ResourceLogs) -> None:
    """Removes the name of the machine."""
    for attribute in resource.resource.attributes:
        if attribute.key == "host.name":
            attribute.value.string_value = "trainer"


def pid_of(data: ResourceSpans | ResourceMetrics | ResourceLogs) -> int:
    """The pid of a resource; 0 if it has none."""
    return next((pair.value.int_value for pair in data.resource.attributes if pair.key == "process.pid"), 0)


def _paths(name: str) -> tuple[Path, Path]:
    folder = RECORDED / name.replace(",", "").replace(" ", "_")
    return folder / "spans.jsonl.gz", folder / "truth.json.gz"


@dataclass(frozen=True)
class Job:
    """A training program that writes its truth into a folder, the last argument of its command."""

    command: list[str]
    """Without the folder."""
    ranks: int = 1
    intervals: frozenset[str] = frozenset({"user"})
    """The kinds of intervals that the receiver emits for each rank while the program warms up."""
    environment: dict[str, str] = field(default_factory=dict)
    """Variables beyond those of this process."""
    gpu: bool = False
    """Whether it needs the stand-in GPU in the folder."""
    samples: int = 19
    """Samples a second of each CPU."""
    stacks: bool = False
    """Whether the receiver reports stacks."""
    overhead: float = 0.0
    """The part of a CPU that probes may cost before calls are sampled. 0: no limit."""


def live(name: str, python: str = sys.executable) -> Run:
    """Runs a scenario under the eBPF receiver, with this Python and its PyTorch."""
    scenario = SCENARIOS[name]
    command = [python, "-m", "benchmarks.training.truth", name]
    return watched(Job(command, scenario.ranks, frozenset(scenario.intervals), gpu=scenario.gpu))


def live_planted(name: str, steps: int, ranks: int, python: str = sys.executable) -> Run:
    """Runs a loop with planted causes under the eBPF receiver, as `why` sets it. The batches have what happens while
    the loop runs with all of them."""
    program = ["-m", "benchmarks.training.planted", name, str(steps)]
    command = [python, *launcher(ranks), *program]
    job = Job(command, ranks, frozenset({"backward"}), {"OMP_NUM_THREADS": "1"}, samples=49, stacks=True, overhead=0.1)
    batches, truths = watched(job)
    loop = truths[0]["loop"]
    return [_within(batch, loop[0], loop[-1]) for batch in batches], truths


def launcher(ranks: int) -> list[str]:
    """The arguments of Python that start a program on so many ranks."""
    return ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"] if ranks > 1 else []


def _within(batch: Batch, since: int, until: int) -> Batch:
    """What happens between these times (ns)."""
    kept = batch.copy()
    for resource in kept.spans.resource_spans if kept.spans else ():
        for scope in resource.scope_spans:
            _keep(scope.spans, lambda span: since <= span.start_time_unix_nano <= span.end_time_unix_nano <= until)
    for of_resource in kept.metrics.resource_metrics if kept.metrics else ():
        for of_scope in of_resource.scope_metrics:
            for metric in of_scope.metrics:
                data = getattr(metric, metric.WhichOneof("data") or "gauge")
                _keep(data.data_points, lambda point: since <= point.time_unix_nano <= until)
    for logs in kept.logs.resource_logs if kept.logs else ():
        for scope_logs in logs.scope_logs:  # a record is about the time before it
            _keep(scope_logs.log_records, lambda record: since + INTERVAL_NS <= record.time_unix_nano <= until)
    return kept


def _keep(items: Any, is_kept: Callable[[Any], bool]) -> None:
    kept = [item for item in items if is_kept(item)]
    del items[:]
    items.extend(kept)


def watched(job: Job) -> Run:
    """Runs a program under the eBPF receiver. Raises RuntimeError with its last output if it fails."""
    return asyncio.run(_watch(job))


async def _watch(job: Job) -> Run:
    mark = uuid4().hex
    cls = Registry.installed().load("receivers", "ebpf")
    settings: dict[str, Any] = {"interval": "500ms", "rescan_interval": "300ms", "max_overhead": job.overhead}
    settings |= {"processes": {"environment": {MARK: mark}}, "sampler_frequency": job.samples, "stacks": job.stacks}
    config = cls.Config.model_validate(settings)
    receiver = cls(config, make_context("receivers", "ebpf", clock=SystemClock()))
    assert isinstance(receiver, Receiver)
    downstream, offset = Downstream(), time.time_ns() - time.monotonic_ns()
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        watching = asyncio.create_task(receiver.run(downstream))
        await _train(replace(job, environment={**job.environment, MARK: mark}), folder, downstream)
        truths = _truths(folder)
        await _settled(downstream, {truth["pid"] for truth in truths})
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
    return downstream.batches, [shifted(truth, offset) for truth in truths]


async def _train(job: Job, folder: Path, downstream: Downstream) -> None:
    """Runs the loop, after the receiver has emitted all kinds of its spans."""
    if job.gpu:
        shutil.copytree(_built_gpu().name, folder, dirs_exist_ok=True)
    program, output = [*job.command, str(folder)], folder / "output"
    with output.open("wb") as file:
        training = await asyncio.create_subprocess_exec(
            *program, cwd=ROOT, stdout=file, stderr=file, env={**os.environ, **job.environment}
        )
    patient_until = time.monotonic() + PATIENCE_S
    while training.returncode is None and time.monotonic() < patient_until:
        if sum(job.intervals <= intervals for intervals in _intervals(downstream, training.pid)) >= job.ranks:
            break
        await asyncio.sleep(0.1)
    (folder / "go").touch()
    if await _end(training, folder, job.ranks):
        last = output.read_text(errors="replace")[-OUTPUT:]
        raise RuntimeError(f"{' '.join(program)} failed with status {training.returncode}: {last}")


@cache
def _built_gpu() -> "tempfile.TemporaryDirectory[str]":
    """The stand-in GPU. To build it takes two seconds."""
    made = tempfile.TemporaryDirectory()
    build(Path(made.name))
    return made


async def _end(training: asyncio.subprocess.Process, folder: Path, ranks: int) -> int:
    """The status of the program. A program that hangs in its exit after all results were written counts as ended."""
    try:
        return await asyncio.wait_for(training.wait(), LONGEST_RUN_S)
    except TimeoutError:
        complete = len(_truths(folder)) >= ranks
        training.kill()
        await training.wait()
        return 0 if complete else 1


def _intervals(downstream: Downstream, pid: int) -> Iterable[set[str]]:
    """The kinds of intervals in the spans of the process and of each of its children."""
    found: dict[int, set[str]] = {pid: set()}
    with suppress(psutil.NoSuchProcess):
        found |= {child.pid: set() for child in psutil.Process(pid).children(recursive=True)}
    for batch in downstream.batches:
        for resource in batch.spans.resource_spans if batch.spans else ():
            if pid_of(resource) in found:
                found[pid_of(resource)] |= {interval(span) for scope in resource.scope_spans for span in scope.spans}
    return found.values()


async def _settled(downstream: Downstream, pids: set[int]) -> None:
    """Waits for the ends of the processes, with which the receiver emits their last spans."""
    patient_until = time.monotonic() + SETTLE_S
    while time.monotonic() < patient_until:
        await asyncio.sleep(0.2)
        if pids <= _ended(downstream):
            break


def _ended(downstream: Downstream) -> set[int]:
    """The pids of the processes that have ended, and have no more spans."""
    resources = (resource for batch in downstream.batches for resource in batch.spans.resource_spans)
    spans = ((resource, span) for resource in resources for scope in resource.scope_spans for span in scope.spans)
    return {pid_of(resource) for resource, span in spans if interval(span) == "process"}


def interval(span: Span) -> str:
    """The kind of interval of a span of the receiver."""
    return next(pair.value.string_value for pair in span.attributes if pair.key == "zernel.interval")


def _truths(folder: Path) -> list[Truth]:
    return [json.loads(path.read_text()) for path in sorted(folder.glob("truth.*.json"))]


def shifted(truth: Truth, offset_ns: int) -> Truth:
    """The truth in Unix time, `offset_ns` later than its own clock."""
    marks = [(name, start + offset_ns, end + offset_ns) for name, start, end in truth["marks"]]
    return {**truth, "loop": [at + offset_ns for at in truth["loop"]], "marks": marks}


if __name__ == "__main__":
    for chosen in sys.argv[1:] or SCENARIOS:
        record(chosen)
