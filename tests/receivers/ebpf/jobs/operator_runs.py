"""The runs of operators of a C program that calls them as PyTorch does."""

from collections.abc import Sequence
from typing import NamedTuple

from opentelemetry.proto.trace.v1.trace_pb2 import Span

from otel_zernel.batch import Batch
from otel_zernel_libraries.training.ledger import STATES, Activity, Snapshot, joined_snapshots, read_snapshots
from otel_zernel_receivers.ebpf.kernel.versions import RUNNING
from tests.receivers.ebpf.standin import Program, Standin
from tests.receivers.ebpf.watching import Watch, attributes_of, spans_of

LOADING = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
STEP = "Optimizer.step#AdamW.step"
GRAD_OFF, GRAD_ON = "set_grad_enabled count=0", "set_grad_enabled count=1"
BACKWARD = "THPEngine_run_backward"
MILLISECOND = 1_000_000
KNOWS_FILE_FAULTS = RUNNING >= (6, 2)


class Run(NamedTuple):
    """The parts of a span of the interval `operators` that do not depend on time."""

    operators: object
    grad: object = True
    end: object = "operator"
    kind: object = "model"
    parts: object = None


def ran(watch: Watch, standin: Standin, commands: Sequence[str]) -> tuple[Batch, Program]:
    """The receiver's reading after a program has run the commands, without a pause between them, and has ended."""
    with standin.start(loads=["libc10.so", "libtorch_cpu.so", "libtorch_python.so", "libcudart.so.12"]) as program:
        program.do("cudaMemcpy size=8")  # the runtime loads the driver
        watch.attach()
        for command in commands:
            program.send(command)
        program.wait()
    return watch.read(), program


def operators_of(batch: Batch, program: Program) -> list[Span]:
    spans = [span for span in spans_of(batch, program.pid) if attributes_of(span)["zernel_interval"] == "operators"]
    return sorted(spans, key=lambda span: span.start_time_unix_nano)


def runs_of(batch: Batch, program: Program) -> list[Run]:
    found = map(attributes_of, operators_of(batch, program))
    names = ("operators_count", "grad", "operators_end", "operators_kind", "operators_parts")
    return [Run(*(one.get(f"zernel_{name}") for name in names)) for one in found]


def runs(watch: Watch, standin: Standin, *commands: str) -> list[Run]:
    return runs_of(*ran(watch, standin, commands))


class Gap(NamedTuple):
    """The doings of a thread between two spans: the difference of its snapshots."""

    seconds: dict[Activity | None, float]
    """The time in each state; None is on the CPU."""
    read: int
    copies: int
    file_faults: int
    faults: int
    written: int
    writing: float
    """Seconds."""
    forks: int

    @property
    def blocked(self) -> float:
        return sum(time for state, time in self.seconds.items() if state not in _AT_WORK)


_AT_WORK = (None, Activity.CPU_WAIT, Activity.GPU_WAIT)


def snapshots_of(span: Span) -> tuple[Snapshot, Snapshot]:
    attributes = attributes_of(span)
    begin, end = (attributes[f"zernel_snapshot_{name}"] for name in ("begin", "end"))
    first, last = read_snapshots(joined_snapshots(begin, end))  # type: ignore[arg-type]
    return first, last


def difference(first: Snapshot, last: Snapshot) -> Gap:
    times = {
        state: (after - before) / 1e9 for state, before, after in zip(STATES, first.times, last.times, strict=True)
    }
    faults = last.minor_faults + last.major_faults - first.minor_faults - first.major_faults
    file_faults = last.file_faults - first.file_faults
    return Gap(
        times,
        last.read - first.read,
        last.copies - first.copies,
        file_faults,
        faults,
        last.written - first.written,
        (last.writing - first.writing) / 1e9,
        last.forks - first.forks,
    )


def named(batch: Batch, program: Program, name: str) -> list[Span]:
    """The spans with this name, in order."""
    spans = [span for span in spans_of(batch, program.pid) if span.name == name]
    return sorted(spans, key=lambda span: span.start_time_unix_nano)


def gap(watch: Watch, standin: Standin, *between: str) -> Gap:
    """The gap between a backward pass and the first operator after it."""
    batch, program = ran(watch, standin, ["addmm", BACKWARD, *between, "addmm"])
    (backward,) = named(batch, program, "backward")
    return difference(snapshots_of(backward)[1], snapshots_of(operators_of(batch, program)[-1])[0])
