"""The watch: its configuration, its end, its progress line, and what the machine lacks."""

import asyncio
import io
import threading
from collections.abc import Iterable
from typing import Any

import pytest

from otel_zernel.batch import Batch
from otel_zernel.component import Component, Finding
from otel_zernel.errors import CannotStart
from otel_zernel.registry import Registry
from otel_zernel.testing import Dropped, FakeClock, make_context
from otel_zernel_commands.why import DemoCommand, WhyCommand
from otel_zernel_commands.why.prerequisites import check_prerequisites, gpu_notes
from otel_zernel_commands.why.progress import WatchProgress
from otel_zernel_commands.why.watch import (
    Watching,
    collecting,
    is_reading,
    watch_settings,
    watched_state,
)
from otel_zernel_commands.why.watch.watching import LONGEST_SEARCH, SHORT_LOOK, pace
from otel_zernel_libraries.job_choice import JobChoice
from tests.commands.why.recorded_runs import SETTINGS, first_process, processed, seen
from tests.exporters.live.live_runs import points
from tests.otlp import metrics_in


class Follower:
    """A job that takes its first step, and ends, at given numbers of looks."""

    def __init__(
        self, first_step: int = 0, end: int = 10_000, *, shows_steps: bool = True, starts_program: bool = False
    ) -> None:
        self.looks = 0
        self.begun_at: int | None = None
        self.share = 0.0
        self.starts_program = starts_program
        self._first_step, self._end, self._shows_steps = first_step, end, shows_steps

    def begin(self) -> None:
        self.begun_at = self.looks

    def show(self, watching: Watching) -> None:
        self.looks += 1

    def has_steps(self) -> bool:
        return self.looks > self._first_step

    def may_show_steps(self) -> bool:
        return self._shows_steps

    def cost(self) -> float:
        return self.share

    def has_ended(self) -> bool:
        return self.looks >= self._end


async def paced(seconds: float, follower: Follower) -> tuple[Watching, float]:
    watching, clock, stop = Watching(seconds), FakeClock(), asyncio.Event()
    await pace(watching, follower, stop, clock)
    assert stop.is_set()
    return watching, clock.monotonic()


async def test_the_time_begins_with_the_first_step() -> None:
    watching, took = await paced(10, Follower(first_step=8))
    assert watching.elapsed == pytest.approx(10)
    assert watching.searched == pytest.approx(4.5)
    assert took == pytest.approx(10 + 4.5)


async def test_the_search_for_steps_is_limited() -> None:
    watching, took = await paced(10, Follower(first_step=9_999))
    assert watching.elapsed == pytest.approx(10)
    assert watching.searched == pytest.approx(LONGEST_SEARCH)
    assert took == pytest.approx(LONGEST_SEARCH + 10)


async def test_programs_that_show_no_steps_are_watched_for_a_short_time() -> None:
    watching, took = await paced(60, Follower(first_step=9_999, shows_steps=False))
    assert watching.searched == took == pytest.approx(SHORT_LOOK)
    _, took = await paced(2, Follower(first_step=9_999, shows_steps=False))
    assert took == pytest.approx(2)


async def test_the_first_step_of_a_started_program_may_come_late() -> None:
    watching, _ = await paced(10, Follower(first_step=600, starts_program=True))
    assert watching.searched == pytest.approx(300, abs=1)
    assert watching.elapsed == pytest.approx(10)


async def test_a_started_program_may_load_pytorch_late() -> None:
    watching, took = await paced(5, Follower(first_step=9_999, end=200, shows_steps=False, starts_program=True))
    assert watching.searched == took == pytest.approx(100)


async def test_a_started_program_begins_when_the_probes_are_in_place() -> None:
    follower, clock, stop = Follower(end=1, starts_program=True), FakeClock(), asyncio.Event()
    attached = threading.Event()
    pacing = asyncio.create_task(pace(Watching(10), follower, stop, clock, attached))
    await asyncio.sleep(0)
    assert follower.begun_at is None
    attached.set()
    await pacing
    assert follower.begun_at == 0


async def test_an_obstacle_to_the_probes_ends_the_watch_before_it_begins() -> None:
    follower, stop, watching = Follower(starts_program=True), asyncio.Event(), Watching(10)
    await pace(watching, follower, stop, FakeClock(), threading.Event(), lambda: "eBPF needs CAP_BPF")
    assert stop.is_set()
    assert watching.obstacle == "eBPF needs CAP_BPF"
    assert follower.begun_at is None


async def test_a_watch_that_costs_too_much_ends_early_and_says_so() -> None:
    follower = Follower()
    follower.share = 0.18
    watching, took = await paced(60, follower)
    assert 10 <= took < 13
    sentence = "The watch ended early: it slowed a job by about 18 %, more than the limit of 15 %."
    assert watching.warnings == [sentence]
    follower.share = 0.14
    assert (await paced(60, follower))[0].warnings == []


async def test_the_end_of_all_jobs_ends_the_watch() -> None:
    watching, _ = await paced(60, Follower(end=12))
    assert watching.elapsed == pytest.approx(5.5)


def test_the_real_components_run_without_ports_and_files() -> None:
    [pipeline] = SETTINGS.pipelines.values()
    assert pipeline.receivers == ("ebpf", "nvml")
    assert pipeline.processors == ("phases",)
    assert SETTINGS.telemetry.metrics.level == "none"
    assert SETTINGS.warnings == ()


@pytest.mark.parametrize("seconds", [1, 19, 20, 3_600, 86_400])
def test_an_answer_covers_the_whole_watch(seconds: float) -> None:
    settings = watch_settings(seconds, collecting(watched_state()), Registry.installed())
    phases: Any = settings.processors["phases"].config
    assert phases.window > seconds


async def test_batches_are_collected_and_left_as_they_are() -> None:
    state = watched_state()
    cls = collecting(state)
    exporter = cls(cls.Config(), make_context("exporters", "why"))
    batches = processed("AdamW")
    before = [(batch.bytes_of("metrics"), batch.bytes_of("traces")) for batch in batches]
    for batch in batches:
        await exporter.export(batch)  # type: ignore[attr-defined]  # it is an exporter
    assert [(batch.bytes_of("metrics"), batch.bytes_of("traces")) for batch in batches] == before
    assert [process.trained for process in state.processes] == [40]


def test_only_a_reading_of_the_probes_says_that_they_are_in_place() -> None:
    assert not is_reading(Batch())
    assert not is_reading(points("hw.gpu.utilization", [({}, 0.5)], {"host.name": "node"}))
    assert is_reading(points("zernel.reading.sequence", [({}, 1)], {"host.name": "node"}))


def test_points_without_a_value_change_nothing() -> None:
    state = seen("AdamW")
    before = dict(first_process(state).phases)
    data = processed("AdamW")[-1].metrics
    for point in (p for m in metrics_in(data) for p in m.sum.data_points):
        point.ClearField("as_double")
        point.flags = 1
    state.add(Batch(metrics=data), 0.0)
    assert first_process(state).phases == before


async def test_processes_beyond_the_limit_are_left_out_and_counted() -> None:
    state = watched_state()
    cls = collecting(state)
    context = make_context("exporters", "why")
    exporter = cls(cls.Config(), context)
    for pid in range(1, 1_050):
        await exporter.export(points("zernel.step.rate", [({}, 1.0)], {"process.pid": pid}))  # type: ignore[attr-defined]  # it is an exporter
    assert len(state.processes) == 1_024
    assert isinstance(context.drop, Dropped)
    assert context.drop.counts == {"max_ranks": 25}


class TerminalStream(io.StringIO):
    @property
    def encoding(self) -> str:  # type: ignore[override]
        return "utf-8"

    def isatty(self) -> bool:
        return True


def test_a_pipe_gets_one_line_of_progress_and_one_with_the_first_cause() -> None:
    stream, state = io.StringIO(), watched_state(lambda _: ("python", "train.py"))
    progress = WatchProgress(stream, state, JobChoice(), lambda _: True)
    for batch in ([], [], processed("AdamW"), []):
        for one in batch:
            state.add(one, 0.0)
        progress.show(Watching(60))
    progress.clear()
    first, second = stream.getvalue().splitlines()
    assert first == "Watching for 60 s. Ctrl-C ends early, with the report so far."
    assert second.startswith("train.py, after 40 steps: The training thread loses time while it loads data: ")


def test_a_terminal_gets_one_line_that_is_removed_at_the_end() -> None:
    stream = TerminalStream()
    progress = WatchProgress(stream, seen("AdamW"), JobChoice(), lambda _: True)
    progress.show(Watching(60, elapsed=12))
    progress.clear()
    line = "12 of 60 s · train.py: 40 steps (data loading, 55 %) · Ctrl-C ends early"
    assert stream.getvalue() == f"\r\x1b[K{line}\r\x1b[K"


def test_it_knows_when_all_processes_of_the_chosen_jobs_have_ended() -> None:
    state = seen("gloo, DDP, a late rank", is_job=True)
    running = {process.pid for process in state.processes}
    progress = WatchProgress(io.StringIO(), state, JobChoice(), running.__contains__)
    assert progress.has_steps()
    assert not progress.has_ended()
    running.pop()
    assert not progress.has_ended()
    running.clear()
    assert progress.has_ended()
    running.add(1)
    assert not WatchProgress(io.StringIO(), state, JobChoice(pid=1), running.__contains__).has_ended()


def test_the_end_of_a_chosen_process_without_steps_ends_the_watch() -> None:
    running = {5}
    progress = WatchProgress(io.StringIO(), watched_state(), JobChoice(pid=5), running.__contains__)
    assert not progress.has_ended()
    running.clear()
    assert progress.has_ended()
    assert not WatchProgress(io.StringIO(), watched_state(), JobChoice(), running.__contains__).has_ended()


def registry(ebpf: Iterable[Finding], nvml: Iterable[Finding] = ()) -> Registry:
    """A registry of two components with these findings."""

    def component(findings: Iterable[Finding]) -> type[Component]:
        from otel_zernel.component import Receiver

        class Fake(Receiver):
            @classmethod
            def examine(cls, config: object = None) -> Iterable[Finding]:
                return findings

            async def run(self, emit: object) -> None: ...

        return Fake

    return Registry({"receivers": {"ebpf": lambda: component(ebpf), "nvml": lambda: component(nvml)}})


def test_without_root_one_sentence_says_so() -> None:
    findings = [Finding("attaching", "eBPF needs the capabilities CAP_BPF and CAP_PERFMON", ok=False)]
    with pytest.raises(CannotStart, match=r"^watching other processes needs root: run `sudo /\S+ why`") as refused:
        check_prerequisites(registry(findings), user=1000)
    assert "`sudo setpriv --reuid=1000 --clear-groups --inh-caps=+bpf,+perfmon," in str(refused.value)


def test_root_without_ebpf_learns_the_reason() -> None:
    findings = [Finding("attaching", "the kernel is in lockdown mode confidentiality", ok=False)]
    with pytest.raises(CannotStart, match="cannot be watched: the kernel is in lockdown mode"):
        check_prerequisites(registry(findings), user=0)


@pytest.mark.parametrize(
    ("finding", "line"),
    [
        (Finding("BTF", "/sys/kernel/btf/vmlinux", ok=True), "`why` can run here."),
        (Finding("kernel", "Linux 4.19 is too old", ok=False), "`why` cannot run here: "),
    ],
)
def test_doctor_ends_with_whether_why_can_run(finding: Finding, line: str) -> None:
    assert WhyCommand().outlook({"receivers::ebpf": [finding]}).startswith(line)
    assert DemoCommand().outlook({"receivers::ebpf": [finding]}) == ""


def test_what_cannot_be_seen_of_gpus_is_a_sentence_each() -> None:
    ebpf = [Finding("libtorch_cpu.so", "53 functions", ok=True), Finding("skipped", "Cannot inspect 3 processes")]
    nvml = [Finding("driver", "libnvidia-ml.so.1 was not found", ok=False)]
    assert check_prerequisites(registry(ebpf, nvml), user=0)
    assert gpu_notes(registry(ebpf, nvml)) == ("GPU utilisation and throttling: libnvidia-ml.so.1 was not found.",)


def test_a_machine_without_pytorch_is_known_before_the_watch() -> None:
    findings = [Finding("processes", "no running process uses CUDA, NCCL or PyTorch")]
    assert not check_prerequisites(registry(findings), user=0)
