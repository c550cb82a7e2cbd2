"""The stacks of processes are added up and reported with their lines."""

from collections.abc import Iterable
from typing import cast

import pytest

from otel_zernel.testing import Dropped
from otel_zernel_libraries.training import semconv
from otel_zernel_libraries.training.ledger import Activity
from otel_zernel_libraries.training.stacks import MOST_LINES, MOST_STACKS, STACKS, CodeLine, ProcessStacks, StackTime
from otel_zernel_receivers.ebpf.emit.stacks import INTERVAL_NS, StackLog
from otel_zernel_receivers.ebpf.kernel.kernel_structs import Code, Interval, ThreadState
from otel_zernel_receivers.ebpf.processes.identities import Identities
from otel_zernel_receivers.ebpf.sampler.stack_lines import PythonStack, StackLines
from otel_zernel_receivers.ebpf.tables.process_table import WatchedProcess
from otel_zernel_receivers.ebpf.tables.samples import SampledStack, SamplesReading, StackCount

JOB, OTHER = WatchedProcess(0, 1, 100), WatchedProcess(1, 1, 101)
FREQUENCY, PERIOD_NS = 20, 50_000_000
FIT, LOAD = CodeLine("train.py", "fit", 3), CodeLine("train.py", "load", 9)
INSIDE_OPTIMIZER, AFTER_LOAD = (Interval.OPTIMIZER + 1) * 2, (Interval.DATA_LOADING + 1) * 2 + 1


class TwoProcesses:
    """Their identities."""

    def attributes_of(self, process: WatchedProcess) -> dict[str, int]:
        return {"process.pid": process.pid}

    def is_selected(self, process: WatchedProcess) -> bool:
        return process == JOB


class Lines:
    """Gives the same lines to every process."""

    def __init__(self, by_stack: dict[int, PythonStack]) -> None:
        self._by_stack = by_stack

    def take(self, own_pid: int) -> dict[int, PythonStack]:
        return self._by_stack


class Log:
    """A log of stacks with the lines of stacks 1, 2 and 3."""

    def __init__(self, lines: dict[int, PythonStack] | None = None) -> None:
        inner_is_cut = PythonStack((LOAD, FIT), is_cut=True)
        self.drop = Dropped()
        stacks = Lines(lines or {1: PythonStack((FIT,), is_cut=False), 2: inner_is_cut, 3: inner_is_cut})
        self._log = StackLog(cast("Identities", TwoProcesses()), cast("StackLines", stacks), self.drop)

    def records(
        self,
        *readings: SamplesReading,
        live: Iterable[WatchedProcess] = (JOB, OTHER),
        time_ns: int = 7,
        is_last: bool = False,
    ) -> list[ProcessStacks]:
        batch = self._log.records(readings, tuple(live), time_ns, is_last=is_last)
        found = []
        for resource_log in batch.logs.resource_logs if batch else ():
            (record,) = resource_log.scope_logs[0].log_records
            assert (record.event_name, record.time_unix_nano) == (semconv.PROCESS_STACKS, time_ns)
            assert resource_log.resource.attributes[0].value.int_value == JOB.pid
            found.append(STACKS.read(record.body))
        return found


def reading(stacks: dict[SampledStack, StackCount], process: WatchedProcess = JOB) -> SamplesReading:
    return SamplesReading(process, {}, 0.0, stacks)


def ran(stack: int, place: int = 0, state: int = ThreadState.ON_CPU, code: int = Code.PYTHON) -> SampledStack:
    return SampledStack(12, place, code, state, stack)


def waited(stack: int, state: int) -> SampledStack:
    return SampledStack(12, AFTER_LOAD, Code.NONE, state, stack)


def test_samples_count_by_their_interval_and_waits_by_their_length() -> None:
    samples = reading(
        {
            ran(1, INSIDE_OPTIMIZER): StackCount(3, 3 * PERIOD_NS),
            waited(2, ThreadState.TIMER): StackCount(2, 50_000_000),
        }
    )
    (stacks,) = Log().records(samples, is_last=True)
    assert stacks.lines == (FIT, LOAD)
    assert stacks.stacks == (
        StackTime(
            thread=12, mark="optimizer", is_inside=True, activity=Activity.PYTHON, seconds=3 / FREQUENCY, lines=(0,)
        ),
        StackTime(thread=12, mark="data_loading", activity=Activity.TIMER, seconds=0.05, lines=(1, 0), is_cut=True),
    )
    assert stacks.left_out == 0


def test_stacks_with_the_same_lines_are_one() -> None:
    log = Log()
    assert not log.records(reading({ran(2): StackCount(1, PERIOD_NS)}))
    (stacks,) = log.records(
        reading({ran(2): StackCount(1, PERIOD_NS), ran(3): StackCount(2, 2 * PERIOD_NS)}), is_last=True
    )
    assert [stack.seconds for stack in stacks.stacks] == [4 / FREQUENCY]


@pytest.mark.parametrize(
    ("stack", "activity"),
    [
        (ran(1, code=Code.OPERATOR), Activity.OPERATOR),
        (ran(1, code=Code.NATIVE, state=ThreadState.LAUNCHING), Activity.NATIVE),
        (ran(1, state=ThreadState.GPU_WAIT), Activity.GPU_WAIT),
        (ran(1, state=ThreadState.SETTLING), Activity.GPU_WAIT),
        (ran(1, state=ThreadState.CPU_WAIT), Activity.PYTHON),
        (waited(1, ThreadState.FILE), Activity.FILE),
        (waited(1, ThreadState.GIL), Activity.GIL),
        (waited(1, ThreadState.POLLING), Activity.SOCKET),
        (waited(1, ThreadState.ON_CPU), Activity.UNKNOWN),
    ],
)
def test_the_code_decides_the_activity_on_the_cpu_and_the_state_that_of_waits_and_calls(
    stack: SampledStack, activity: Activity
) -> None:
    (stacks,) = Log().records(reading({stack: StackCount(1, 1_000_000)}), is_last=True)
    assert [stack.activity for stack in stacks.stacks] == [activity]


def test_a_record_comes_after_some_time_and_at_the_end_of_its_process() -> None:
    log = Log()
    samples = reading({ran(1): StackCount(1, PERIOD_NS)})
    assert not log.records(samples)
    assert len(log.records(samples, time_ns=7 + INTERVAL_NS)) == 1
    assert not log.records(samples, time_ns=6 + 2 * INTERVAL_NS)
    assert len(log.records(live=[OTHER], time_ns=6 + 2 * INTERVAL_NS)) == 1
    assert not log.records(is_last=True)


def test_a_process_that_is_not_selected_has_no_record() -> None:
    assert not Log().records(reading({ran(1): StackCount(1, PERIOD_NS)}, OTHER), is_last=True)


def test_a_process_without_stacks_has_no_record() -> None:
    assert not Log().records(reading({}), is_last=True)


def test_stacks_with_too_many_different_lines_are_left_out() -> None:
    count, depth = 200, 30
    files = {
        stack: PythonStack(tuple(CodeLine(f"{stack}.py", "fit", line) for line in range(depth)), is_cut=False)
        for stack in range(1, count + 1)
    }
    log = Log(files)
    (stacks,) = log.records(reading({ran(stack): StackCount(1, PERIOD_NS) for stack in files}), is_last=True)
    kept = MOST_LINES // depth
    assert (len(stacks.stacks), len(stacks.lines)) == (kept, kept * depth)
    assert stacks.left_out == pytest.approx((count - kept) / FREQUENCY)
    assert log.drop.counts == {"too_many_stacks": count - kept}


def test_stacks_that_could_not_be_read_are_counted() -> None:
    log = Log()
    (stacks,) = log.records(
        reading({ran(1): StackCount(1, PERIOD_NS), ran(9): StackCount(2, 2 * PERIOD_NS)}), is_last=True
    )
    assert (len(stacks.stacks), stacks.left_out) == (1, 2 / FREQUENCY)
    assert log.drop.counts == {"unread_stack": 1}


def test_samples_of_python_without_frames_are_counted() -> None:
    log = Log()
    log.records(SamplesReading(JOB, {}, 0.0, without_frames=3))
    assert log.drop.counts == {"no_frames": 3}


def test_the_longest_stacks_are_kept_if_there_are_too_many() -> None:
    many = MOST_STACKS + 5
    log = Log({stack: PythonStack((CodeLine("train.py", "fit", stack),), is_cut=False) for stack in range(1, many + 1)})
    (stacks,) = log.records(
        reading({ran(stack): StackCount(stack, stack * PERIOD_NS) for stack in range(1, many + 1)}), is_last=True
    )
    assert len(stacks.stacks) == MOST_STACKS
    assert stacks.left_out == (1 + 2 + 3 + 4 + 5) / FREQUENCY
    assert log.drop.counts == {"too_many_stacks": 5}


def test_the_stacks_between_two_records_are_bounded() -> None:
    log = Log()
    places = {ran(1, place): StackCount(1, PERIOD_NS) for place in range(5000)}
    stacks = log._log
    stacks.records([reading(places)], [JOB], 7, is_last=False)
    assert len(stacks._pending[JOB].ns) == 4096
    assert stacks._pending[JOB].left_out == 5000 - 4096
