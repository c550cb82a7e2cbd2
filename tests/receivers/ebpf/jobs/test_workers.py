"""Workers of a training process, started by every method of multiprocessing, have no row and no series of their own."""

import json
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord

from otel_zernel.batch import Batch
from otel_zernel.clock import SystemClock
from otel_zernel.testing import Dropped, make_context
from otel_zernel_receivers.ebpf.config import EbpfConfig
from tests.receivers.ebpf.control_groups import control_group
from tests.receivers.ebpf.jobs import train_workers
from tests.receivers.ebpf.standin import Standin
from tests.receivers.ebpf.talking import Talker, talking
from tests.receivers.ebpf.watching import Watch, attributes_of, doubles, endings_of, metrics_of, numbers

WORKERS = 4
ENDS = "zernel.dataloader.worker.ends"
TICK = 1 / os.sysconf("SC_CLK_TCK")


@dataclass
class Job:
    """A training process with its workers."""

    program: Talker
    workers: list[int]

    @property
    def pid(self) -> int:
        return self.program.pid


@contextmanager
def running(
    watch: Watch, standin: Standin, method: str, *arguments: str, wrapper: Sequence[str] = (), **environment: str
) -> Iterator[Job]:
    script = str(train_workers.__file__)
    command = [*wrapper, sys.executable, script, str(standin.folder), method, str(WORKERS), *arguments]
    with talking(*command, environment=environment) as program:
        watch.attach()
        yield Job(program, json.loads(program.ask()))


@pytest.fixture
def watch(fresh_watch: Watch) -> Watch:
    """The counts of ends have no pid, and workers of an earlier test may end late."""
    return fresh_watch


def pids_with_points(batch: Batch) -> set[int]:
    """The pids of all series."""
    return {
        int(str(attributes_of(point)["process_pid"]))
        for metric in metrics_of(batch).values()
        for point in getattr(metric, str(metric.WhichOneof("data"))).data_points
        if "process_pid" in attributes_of(point)
    }


def settled(watch: Watch) -> set[int]:
    """The pids of the processes with a row, once the rows of workers are free again: two readings after a scan."""
    for _ in range(4):
        watch.attach()
        watch.read()
    return {process.pid for process in watch.processes()}


def records_of(batch: Batch) -> list[tuple[dict[str, Any], LogRecord]]:
    """The log records with the attributes of their resources."""
    return [
        (attributes_of(resource.resource), record)
        for resource in batch.logs.resource_logs
        for scope in resource.scope_logs
        for record in scope.log_records
    ]


METHODS = ("fork", "spawn", "forkserver")


@pytest.mark.parametrize("method", METHODS)
def test_workers_have_no_row_and_no_series_but_their_trainer_has_a_few_and_names_their_ends(
    watch: Watch, standin: Standin, method: str, caplog: pytest.LogCaptureFixture
) -> None:
    with running(watch, standin, method) as job:
        assert_trainer_has_a_few(watch, job)
        os.kill(job.workers[1], signal.SIGKILL)
        assert job.program.ask("exit 3") == "ended"
        while psutil.pid_exists(job.workers[1]) and psutil.Process(job.workers[1]).status() != psutil.STATUS_ZOMBIE:
            time.sleep(0.01)
        watch.taken()
        assert_names_ends(watch.read(), job, {record.getMessage() for record in caplog.records})


def assert_trainer_has_a_few(watch: Watch, job: Job) -> None:
    assert settled(watch) & {job.pid, *job.workers} == {job.pid}
    batch = watch.read()
    assert not pids_with_points(batch) & set(job.workers)
    assert numbers(batch, "zernel.dataloader.workers", process_pid=job.pid)[-1] == WORKERS
    cpu = sum(doubles(batch, "zernel.dataloader.worker.cpu.time", process_pid=job.pid))
    used = sum(map(cpu_time, job.workers))
    assert used * 0.5 < cpu <= used + 0.1, "the kernel counts each worker's time in ticks of 10 ms"
    assert doubles(batch, "zernel.dataloader.worker.io.wait", process_pid=job.pid)
    memory = numbers(batch, "zernel.dataloader.worker.memory.anonymous", process_pid=job.pid)[-1]
    assert memory == pytest.approx(sum(map(anonymous_memory, job.workers)), rel=0.2)


def assert_names_ends(batch: Batch, job: Job, lines: set[str]) -> None:
    """Each end is a metric, a span, a log record and a log line."""
    assert numbers(batch, ENDS, process_signal="SIGKILL") == [1]
    assert numbers(batch, ENDS, process_exit_code=3) == [1]
    assert numbers(batch, "zernel.dataloader.workers", process_pid=job.pid)[-1] == WORKERS - 2
    ends = {
        attributes_of(span)["zernel_dataloader_worker_pid"]: attributes_of(span)
        for resource in batch.spans.resource_spans
        if attributes_of(resource.resource)["process_pid"] == job.pid
        for span in resource.scope_spans[0].spans
        if span.name == "worker" and span.status.code == 2
    }
    assert ends[job.workers[1]]["process_signal"] == "SIGKILL"
    assert ends[job.workers[0]]["process_exit_code"] == 3
    said = {record.body.string_value for _, record in records_of(batch)}
    for pid, end in ((job.workers[1], "was killed by SIGKILL"), (job.workers[0], "ended with exit code 3")):
        (sentence,) = [text for text in said if f"pid {pid})" in text]
        assert f"of process {job.pid} on" in sentence
        assert sentence.endswith(end)
        assert sentence in lines


def anonymous_memory(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon:"))


def cpu_time(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_work_of_workers_is_counted_from_their_beginning_to_their_usual_end(watch: Watch, standin: Standin) -> None:
    with running(watch, standin, "fork") as job:
        batch = watch.read()
        size = sum(numbers(batch, "zernel.dataloader.worker.read.size", process_pid=job.pid))
        count = sum(numbers(batch, "zernel.dataloader.worker.read.count", process_pid=job.pid))
        assert (count, size) == (WORKERS * train_workers.READS, WORKERS * train_workers.READS * train_workers.SIZE)
        assert {process.pid for process in watch.processes()} & set(job.workers) == set(), "not even for a moment"
        job.program.ask("exit 0")
        batch = watch.read()
        assert numbers(batch, ENDS, process_exit_code=0) == [1]
        assert "logs" not in batch.signals
        cpu = sum(doubles(batch, "zernel.dataloader.worker.cpu.time", process_pid=job.pid))
        assert cpu >= train_workers.CPU * WORKERS * 0.9, "the time of the ended worker is counted, too"


def test_a_table_with_room_for_the_trainer_has_room_for_its_workers(loadable: None, standin: Standin) -> None:
    context = make_context(clock=SystemClock())
    with Watch(EbpfConfig(max_processes=1), context) as watch, running(watch, standin, "fork") as job:
        for _ in range(3):
            job.program.ask("step")
            batch = watch.read()
        assert numbers(batch, "zernel.dataloader.workers", process_pid=job.pid)[-1] == WORKERS
    assert isinstance(context.drop, Dropped)
    assert not context.drop.counts


def test_workers_are_found_that_start_before_their_trainer_trains_or_only_share_tensors_as_old_pytorch_does(
    watch: Watch, standin: Standin
) -> None:
    with running(watch, standin, "fork", "early") as early, running(watch, standin, "fork", "unnamed") as unnamed:
        with_rows = settled(watch)
        for job in (early, unnamed):
            assert with_rows & {job.pid, *job.workers} == {job.pid}
            assert numbers(watch.read(), "zernel.dataloader.workers", process_pid=job.pid)[-1] == WORKERS


def test_a_child_process_without_any_evidence_is_no_worker(watch: Watch, standin: Standin) -> None:
    with ExitStack() as stack:
        jobs = [stack.enter_context(running(watch, standin, method, "alien")) for method in METHODS]
        with_rows = settled(watch)
        batch = watch.read()
        for job in jobs:
            assert with_rows >= {job.pid, *job.workers}, "each is a process of its own that calls PyTorch"
            assert numbers(batch, "zernel.dataloader.workers", process_pid=job.pid) == []
            os.kill(job.workers[1], signal.SIGKILL)
        watch.taken()
        assert numbers(watch.read(), ENDS) == []


def test_a_worker_needs_no_probed_call_and_a_child_that_trains_is_none(watch: Watch, standin: Standin) -> None:
    """The workers of most data sets call no operator that is probed."""
    with running(watch, standin, "fork") as job:
        watch.read()
        job.program.ask("quiet")
        batch = watch.read()
        assert numbers(batch, "zernel.dataloader.workers", process_pid=job.pid)[-1] == WORKERS + 1
        reads = sum(numbers(batch, "zernel.dataloader.worker.read.count", process_pid=job.pid))
        assert reads == (WORKERS + 1) * train_workers.READS
        cpu = sum(doubles(batch, "zernel.dataloader.worker.cpu.time", process_pid=job.pid))
        in_user_and_kernel = 2 * TICK
        assert cpu > (WORKERS + 1) * (train_workers.CPU - in_user_and_kernel), "/proc cuts both times to whole ticks"
        child = int(job.program.ask("train"))
        assert settled(watch) & {job.pid, child, *job.workers} == {job.pid, child}


def test_workers_of_processes_that_the_environment_selects_are_counted(loadable: None, standin: Standin) -> None:
    selected = {"RANK": "3", "TEST_OF_WORKERS": "3"}
    with (
        Watch(EbpfConfig.model_validate({"processes": {"environment": selected}})) as watch,
        running(watch, standin, "fork", **selected) as job,
        running(watch, standin, "fork", RANK="3") as unselected,
    ):
        settled(watch)
        batch = watch.read()
        assert numbers(batch, "zernel.dataloader.workers", process_pid=job.pid)[-1] == WORKERS
        assert numbers(batch, "zernel.dataloader.workers", process_pid=unselected.pid) == []


def test_the_end_of_a_rank_is_a_metric_a_log_record_and_a_log_line(
    watch: Watch, standin: Standin, caplog: pytest.LogCaptureFixture
) -> None:
    job_of = {"RANK": "3", "WORLD_SIZE": "8", "SLURM_JOB_ID": "4711", "OTEL_SERVICE_NAME": "bert"}
    with running(watch, standin, "fork", **job_of) as job:
        watch.read()
        job.program.kill()
        watch.taken()
        batch = watch.read()
    origin = {"zernel_rank": 3, "process_signal": "SIGKILL"}
    assert numbers(batch, "zernel.process.ends", **origin) == [1]
    ((resource, record),) = [pair for pair in records_of(batch) if pair[1].event_name == "zernel.process.end"]
    expected = {"service_name": "bert", "zernel_job_id": "4711", "zernel_rank": 3, "process_pid": job.pid}
    assert resource.items() >= expected.items()
    assert record.severity_text == "ERROR"
    assert f"Rank 3 ({Path(sys.executable).resolve().name}, pid {job.pid}) on " in record.body.string_value
    assert record.body.string_value.endswith("was killed by SIGKILL")
    assert record.body.string_value in [line.getMessage() for line in caplog.records]
    (span,) = endings_of(batch, job.pid)
    assert attributes_of(span)["process_signal"] == "SIGKILL"
    services = {attributes_of(resource.resource)["service_name"] for resource in batch.metrics.resource_metrics}
    assert services == {"bert", "otel-zernel"}


@pytest.fixture
def small_memory() -> Iterator[Path]:
    """A control group with 150 MB of memory."""
    limit = str(150 << 20)
    with control_group(("memory", "memory.limit_in_bytes", limit), (".", "memory.max", limit)) as group:
        yield group


def test_a_worker_that_runs_out_of_memory_is_named(
    watch: Watch, standin: Standin, small_memory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    into_group = ("sh", "-c", f'echo $$ > {small_memory}/cgroup.procs && exec "$@"', "-")
    with running(watch, standin, "fork", wrapper=into_group) as job:
        watch.read()
        assert job.program.ask("exit -1") == "ended"
        watch.taken()
        batch = watch.read()
    assert numbers(batch, ENDS, process_signal="SIGKILL") == [1]
    ((_, record),) = records_of(batch)
    named = f"A data-loading worker (pt_data_worker, pid {job.workers[0]}) of process {job.pid} on "
    assert record.body.string_value.startswith(named)
    assert record.body.string_value.endswith(" was killed by SIGKILL: out of memory")
    assert record.body.string_value in [line.getMessage() for line in caplog.records]
    spans = [span for resource in batch.spans.resource_spans for span in resource.scope_spans[0].spans]
    (span,) = [span for span in spans if span.name == "worker"]
    assert attributes_of(span)["zernel_process_out_of_memory"] is True
