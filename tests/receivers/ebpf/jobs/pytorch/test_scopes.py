"""In real PyTorch, scopes that are not closed properly corrupt neither phases nor spans."""

from collections import Counter
from collections.abc import Iterator

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from otel_zernel.batch import Batch
from tests.receivers.ebpf.jobs.pytorch.test_operators_in_torch import done, running
from tests.receivers.ebpf.standin import Standin
from tests.receivers.ebpf.talking import Talker
from tests.receivers.ebpf.watching import Watch, calls, name_of, spans_of

PHASES = ("data_loading", "gpu_compute", "optimizer_step", "unknown")
ROUNDS, THREADS, KEPT = 5, 4, 16
LOADING, STEP = "enumerate(DataLoader)#A.__next__", "Optimizer.step#A.step"
ERROR = 2


@pytest.fixture(scope="module")
def trainer(standin: Standin, python: str) -> Iterator[Talker]:
    with running(python, "train_scopes", str(standin.cudart)) as trainer:
        yield trainer


def scopes_of(watch: Watch, trainer: Talker, case: str) -> tuple[Counter[str], list[Span]]:
    """The names and spans of the scopes of a case. All its waits must be in their phases."""
    ran = done(watch, trainer, case)
    assert phases(ran.batch, ran.pid) == ran.made
    all_spans = spans_of(ran.batch, ran.pid)
    spans = [span for span in all_spans if span.name != "operators" and not name_of(span).startswith("cuda")]
    return Counter(name_of(span) for span in spans), spans


def phases(batch: Batch, pid: int) -> dict[str, int]:
    counted = {phase: calls(batch, "zernel.cuda.sync.wait", process_pid=pid, zernel_phase=phase) for phase in PHASES}
    return {phase: count for phase, count in counted.items() if count}


def is_error(span: Span) -> bool:
    return span.status.code == ERROR


def test_exceptions_close_the_scopes_that_they_go_through(watch: Watch, trainer: Talker) -> None:
    names, spans = scopes_of(watch, trainer, "exceptions")
    assert names == {"outer": ROUNDS, STEP: ROUNDS, "inner": ROUNDS}
    assert not any(map(is_error, spans))


def test_scopes_left_open_end_with_the_one_around_them(watch: Watch, trainer: Talker) -> None:
    names, spans = scopes_of(watch, trainer, "open_scopes")
    assert names == {"outer": ROUNDS, STEP: ROUNDS, "left open": ROUNDS}
    assert {name_of(span): is_error(span) for span in spans} == {"outer": False, STEP: True, "left open": True}
    of = {name: sorted(end(span) for span in spans if name_of(span) == name) for name in names}
    assert all(
        0 <= outer - inner < 1_000_000
        for name in (STEP, "left open")
        for inner, outer in zip(of[name], of["outer"], strict=True)
    )


def test_scopes_that_stay_open_do_not_displace_others(watch: Watch, trainer: Talker) -> None:
    names, spans = scopes_of(watch, trainer, "open_for_good")
    assert names[LOADING] == ROUNDS
    assert names["left open"] == 40
    errors = Counter(name_of(span) for span in spans if is_error(span))
    assert set(errors) == {"left open"}
    assert errors["left open"] > 40 - KEPT, "the program closes the others at its end"


def test_scopes_nested_too_deep_are_all_emitted(watch: Watch, trainer: Talker) -> None:
    names, spans = scopes_of(watch, trainer, "deep")
    assert names == {STEP: ROUNDS, "after": 1} | {f"depth {depth}": ROUNDS for depth in range(1, 21)}
    lost = {name_of(span) for span in spans if is_error(span)}
    assert lost == {f"depth {depth}" for depth in range(KEPT, 21)}, "their ends are unknown"


def test_threads_are_in_the_phases_of_their_own_scopes(watch: Watch, trainer: Talker) -> None:
    names, spans = scopes_of(watch, trainer, "threads")
    assert names["inside"] == ROUNDS * THREADS
    assert sum(names.values()) == 2 * ROUNDS * THREADS
    assert not any(map(is_error, spans))


def test_scopes_of_threads_that_help_backward_do_not_end_it(watch: Watch, trainer: Talker) -> None:
    names, spans = scopes_of(watch, trainer, "backward")
    assert names == {"backward": ROUNDS, "helping": ROUNDS, "Optimizer.step#SGD.step": ROUNDS}
    assert not any(map(is_error, spans))


def end(span: Span) -> int:
    return span.end_time_unix_nano
