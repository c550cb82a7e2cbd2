"""Scopes of a C program that opens them as PyTorch does: nested, abandoned, too deep. Calls have their phases."""

from collections import Counter
from collections.abc import Sequence

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from otel_zernel.batch import Batch
from tests.receivers.ebpf.standin import Program, Standin
from tests.receivers.ebpf.watching import Watch, attributes_of, calls, name_of, spans_of

LOADING = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
STEP = "Optimizer.step#AdamW.step"
CALLS_INSIDE = "cudaLaunchKernel times=10"
SCOPES_KEPT = 16


def run(watch: Watch, standin: Standin, commands: Sequence[str]) -> tuple[Batch, Program]:
    """The receiver's reading after a program has run the commands. The program still runs."""
    with standin.start(loads=["libtorch_cpu.so", "libtorch_python.so", "libcudart.so.12"]) as program:
        watch.attach()
        for command in commands:
            program.do(command)
        return watch.read(), program


def scopes_of(batch: Batch, program: Program) -> list[Span]:
    return [span for span in spans_of(batch, program.pid) if not name_of(span).startswith("cuda")]


def launches_by_phase(batch: Batch, program: Program) -> dict[str, int]:
    name, pid = "zernel.cuda.launch.latency", program.pid
    phases = ("data_loading", "gpu_compute", "optimizer_step", "unknown")
    counts = {phase: calls(batch, name, process_pid=pid, zernel_phase=phase) for phase in phases}
    return {phase: count for phase, count in counts.items() if count}


def test_every_scope_of_a_training_step_is_emitted(watch: Watch, standin: Standin) -> None:
    steps = 5
    step = [f"open {LOADING}", CALLS_INSIDE, "close", "cudaLaunchKernel times=20", "THPEngine_run_backward"]
    step += [
        "cudaLaunchKernel times=7",
        f"open {STEP}",
        "cudaLaunchKernel times=5",
        "close",
        "cudaLaunchKernel times=2",
    ]
    batch, program = run(watch, standin, step * steps)
    assert launches_by_phase(batch, program) == {
        "data_loading": 10 * steps,
        "gpu_compute": 27 * steps,
        "optimizer_step": 5 * steps,
        "unknown": 2 * steps,
    }
    intervals = Counter(attributes_of(span)["zernel_interval"] for span in scopes_of(batch, program))
    assert intervals == {"data_loading": steps, "backward": steps, "optimizer": steps}


def test_scopes_nest_and_the_outer_phase_returns(watch: Watch, standin: Standin) -> None:
    inner = [f"open {STEP}", CALLS_INSIDE, "close"]
    batch, program = run(watch, standin, [f"open {LOADING}", *inner, "cudaLaunchKernel times=3", "close"])
    assert launches_by_phase(batch, program) == {"optimizer_step": 10, "data_loading": 3}
    outer, nested = sorted(scopes_of(batch, program), key=lambda span: span.start_time_unix_nano)
    assert (outer.name, nested.name) == (LOADING, STEP)
    assert outer.start_time_unix_nano <= nested.start_time_unix_nano
    assert nested.end_time_unix_nano <= outer.end_time_unix_nano


def test_an_abandoned_scope_ends_with_the_one_around_it(watch: Watch, standin: Standin) -> None:
    batch, program = run(watch, standin, ["open outer", "open left", "abandon", "close"])
    errors = {name_of(span): span.status.code == span.status.STATUS_CODE_ERROR for span in scopes_of(batch, program)}
    assert errors == {"outer": False, "left": True}


@pytest.mark.parametrize("depth", [1, SCOPES_KEPT, SCOPES_KEPT + 4])
def test_scopes_of_any_depth_are_all_emitted(watch: Watch, standin: Standin, depth: int) -> None:
    names = [f"scope {number}" for number in range(depth)]
    batch, program = run(watch, standin, [*(f"open {name}" for name in names), *["close"] * depth])
    assert sorted(name_of(span) for span in scopes_of(batch, program)) == sorted(names)


def test_a_long_name_is_truncated(watch: Watch, standin: Standin) -> None:
    batch, program = run(watch, standin, ["open " + "n" * 100, "close"])
    (span,) = scopes_of(batch, program)
    assert name_of(span) == "n" * 63
