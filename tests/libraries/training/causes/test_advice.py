"""Each advice can help: it follows from the activity and from facts, not from the position alone."""

from typing import Any

import pytest

from otel_zernel_libraries.training.causes import CauseName, Facts, answer_on
from otel_zernel_libraries.training.causes.advice import Case, advice_on
from otel_zernel_libraries.training.cpu_takers import CpuTaker, TakerKind
from otel_zernel_libraries.training.ledger import Activity, Position
from tests.libraries.training.causes.simulated import HEALTHY, Part, Plan, simulated

LOADER = {"has_loader": True, "workers": 0, "cpus": 8.0}
WORKERS = {"has_loader": True, "workers": 4, "cpus": 8.0}


def advice(
    cause: CauseName,
    position: Position | None = None,
    activity: Activity | None = None,
    gain: float = 0.02,
    step: float = 0.04,
    **facts: Any,
) -> str:
    return " ".join(advice_on(Case(cause, position, activity, Facts(**facts), gain, step, gain)))


@pytest.mark.parametrize(
    ("activity", "position", "facts", "has", "lacks"),
    [
        (Activity.PYTHON, Position.LOAD, LOADER, "num_workers=2", "queue"),
        (Activity.PYTHON, Position.LOAD, LOADER | {"cpus": 1.0}, "before training", "num_workers"),
        (Activity.PYTHON, Position.LOAD, WORKERS, "collate_fn", "num_workers"),
        (Activity.PYTHON, Position.LOAD, {}, "before training", "num_workers"),
        (Activity.FILE, Position.LOAD, LOADER, "faster storage", "before training"),
        (Activity.LOCK, Position.LOAD, {}, "the thread that makes the batches", "num_workers"),
        (Activity.PIPE, Position.LOAD, {}, "the other end of the pipe", "faster storage"),
        (Activity.LOCK, Position.FORWARD, LOADER, "holds the lock", "worker"),
        (Activity.FILE, Position.FORWARD, LOADER, "Read, write or send it", "worker"),
        (Activity.FAULT, Position.LOAD, {}, "more memory", "worker"),
        (Activity.SWAP, Position.OPTIMIZER, {}, "more memory", "worker"),
        (Activity.CHILD, Position.AFTER_STEP, LOADER, "less often", "worker"),
        (Activity.TIMER, Position.FORWARD, LOADER, "Remove the sleep", "worker"),
        (Activity.PYTHON, Position.INFERENCE, {}, "out of the pass", "logging"),
    ],
)
def test_the_activity_decides_what_to_change(
    activity: Activity, position: Position, facts: dict[str, Any], has: str, lacks: str
) -> None:
    text = advice(CauseName.SEGMENT, position, activity, **facts)
    assert has in text
    assert lacks not in text


def test_so_many_workers_are_advised_as_a_step_needs_and_as_there_are_cpus() -> None:
    def workers(activity: Activity, load: float, step: float, cpus: float) -> str:
        facts: dict[str, Any] = LOADER | {"cpus": cpus}
        text = advice(CauseName.SEGMENT, Position.LOAD, activity, load, step, **facts)
        return text.partition("num_workers=")[2].partition(",")[0]

    assert workers(Activity.PYTHON, 0.03, 0.04, 8) == "4"
    assert workers(Activity.PYTHON, 0.09, 0.10, 4) == "3"
    assert workers(Activity.PYTHON, 0.09, 0.10, 2) == "1"
    assert workers(Activity.TIMER, 0.09, 0.10, 2) == "10"
    assert workers(Activity.PYTHON, 0.0005, 0.0035, 8) == "", "to take a batch from a worker takes longer"


def test_workers_are_no_advice_for_a_load_that_waits_for_a_cpu_in_most_of_its_time() -> None:
    parts = Part(Position.LOAD, Activity.PYTHON, 0.0005), Part(Position.LOAD, Activity.CPU_WAIT, 0.02)
    facts = Facts(has_loader=True, workers=0, cpus=8, runnable=1.0)
    answer = answer_on(simulated(Plan((*HEALTHY, *parts), facts=facts)))
    assert answer
    assert answer.causes
    assert not any("num_workers" in text for one in answer.causes for text in one.advice)


def test_workers_are_as_many_as_all_of_the_load_needs() -> None:
    parts = [Part(Position.LOAD, activity, 0.015) for activity in (Activity.FILE, Activity.PYTHON)]
    answer = answer_on(simulated(Plan((*HEALTHY, *parts), facts=Facts(has_loader=True, workers=0, cpus=8))))
    assert answer
    assert {cause.activity: "num_workers=2" in cause.advice[0] for cause in answer.causes} == {
        Activity.FILE: True,
        Activity.PYTHON: True,
    }


def test_workers_that_compute_on_all_cpus_are_no_reason_for_more_of_them() -> None:
    busy = advice(CauseName.WORKERS_SLOW, workers=3, cpus=2.0, worker_cpu=1.1)
    assert "Do less for each sample" in busy
    assert "more workers" not in busy
    idle = advice(CauseName.WORKERS_SLOW, workers=1, cpus=2.0, worker_cpu=0.1)
    assert "Try more workers" in idle
    assert "compute" not in idle
    reading = advice(CauseName.WORKERS_SLOW, workers=2, cpus=2.0, worker_cpu=0.1, worker_io=1.5)
    assert "faster storage" in reading
    assert "Try more workers" not in reading
    assert advice(CauseName.WORKERS_SLOW, workers=2, cpus=2.0) == "", "nothing is known about the workers"


def test_more_workers_than_free_cpus_are_not_advised() -> None:
    few = advice(CauseName.WORKERS_TOO_FEW, gain=0.09, step=0.1, workers=2, worker_cpu=2.0, cpus=6.0)
    assert "num_workers=5" in few


@pytest.mark.parametrize(
    ("cause", "kind", "has"),
    [
        (CauseName.CPU_TAKEN, TakerKind.OTHER, "Stop the other programs"),
        (CauseName.THREADS, TakerKind.SELF, "set_num_threads(2)"),
        (CauseName.THREADS, TakerKind.CHILD, "fewer workers"),
        (CauseName.THREADS, TakerKind.RANK, "CPUs of its own"),
        (CauseName.STRAGGLER, TakerKind.OTHER, "Stop the other programs"),
        (CauseName.STRAGGLER, TakerKind.RANK, "CPUs of its own"),
        (CauseName.STRAGGLER, TakerKind.SELF, "set_num_threads(2)"),
    ],
)
def test_whoever_takes_the_cpu_decides_how_to_get_it_back(cause: CauseName, kind: TakerKind, has: str) -> None:
    takers = {CpuTaker(kind, "some"): 9.0, CpuTaker(TakerKind.COLLECTOR): 1.0, CpuTaker(TakerKind.OTHER): 0.5}
    facts: dict[str, Any] = {"takers": takers, "cpus": 2.0, "runnable": 8.0, "has_loader": True, "workers": 0}
    text = advice(cause, Position.LOAD, Activity.CPU_WAIT, **facts)
    assert has in text
    assert ("other programs" in text) == (kind is TakerKind.OTHER)
    assert "num_workers" not in text


def test_fewer_threads_are_advised_only_to_more_of_them_than_cpus_and_to_ranks_that_share_them() -> None:
    own, rank = CpuTaker(TakerKind.SELF), CpuTaker(TakerKind.RANK, "python")
    alone = advice(CauseName.THREADS, takers={own: 1.0}, cpus=2.0, runnable=1.5)
    assert "set_num_threads" not in alone
    one_each = advice(CauseName.THREADS, takers={own: 1.0, rank: 0.5}, cpus=2.0, runnable=1.3, ranks_here=2)
    assert "set_num_threads" not in one_each
    assert "CPUs of its own" in one_each
    shared = advice(CauseName.THREADS, takers={own: 1.0, rank: 0.5}, cpus=8.0, runnable=6.0)
    assert "set_num_threads(4)" in shared
    of_four = advice(CauseName.THREADS, takers={own: 1.0, rank: 0.5}, cpus=8.0, runnable=6.0, ranks_here=4)
    assert "set_num_threads(2)" in of_four
