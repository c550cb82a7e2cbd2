"""Each advice can help: it follows from the activity and from facts, not from the position alone."""

from itertools import product
from typing import Any

import pytest

from otel_zernel_libraries.training.causes import CauseName, Facts, GpuFacts
from otel_zernel_libraries.training.causes.advice import Case, advice_on
from otel_zernel_libraries.training.causes.library_calls import library_call
from otel_zernel_libraries.training.cpu_takers import CpuTaker, TakerKind
from otel_zernel_libraries.training.ledger import Activity, Position
from otel_zernel_libraries.training.stacks import CodeLine
from tests.libraries.training.causes.simulated import Part, answer_to
from tests.libraries.training.made_stacks import FETCH, LOOP, MAIN, PACKAGES, STANDARD, TOKENIZE, WORKER_LOOP

LOADER: dict[str, Any] = {"has_loader": True, "workers": 0, "cpus": 8.0}
WORKERS: dict[str, Any] = {"has_loader": True, "workers": 4, "cpus": 8.0}


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
        (Activity.PYTHON, Position.AFTER_STEP, {}, "If this makes batches", "`.item()`"),
        (Activity.PYTHON, Position.AFTER_STEP, LOADER, "`gc.collect()`", "If this makes batches"),
        (Activity.UNKNOWN, Position.AFTER_STEP, LOADER, "every few steps", "Look at"),
        (Activity.PIPE, Position.LOAD, {}, "the other end of the pipe", "faster storage"),
        (Activity.LOCK, Position.FORWARD, LOADER, "for the other thread", "worker"),
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
    answer = answer_to(*parts, facts=facts)
    assert answer.causes
    assert not any("num_workers" in text for cause in answer.causes for text in cause.advice)


def test_workers_are_as_many_as_all_of_the_load_needs() -> None:
    parts = [Part(Position.LOAD, activity, 0.015) for activity in (Activity.FILE, Activity.PYTHON)]
    answer = answer_to(*parts, facts=Facts(has_loader=True, workers=0, cpus=8))
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
    assert advice(CauseName.WORKERS_SLOW, workers=2, cpus=2.0).startswith("Do less for each sample"), "not known"


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


_OF_SEGMENTS = (CauseName.SEGMENT, CauseName.PERIODIC, CauseName.SLOW_STEPS, CauseName.GROWTH, CauseName.STRAGGLER)
_STOPS = (Position.EVALUATION, Position.CHECKPOINT, Position.COMPILE, Position.UNKNOWN)
_NO_SEGMENTS = (
    *(Activity.CPU_WAIT, Activity.THROTTLED, Activity.GIL, Activity.GPU_WAIT, Activity.LAUNCH_BLOCKED),
    *(Activity.COPY, Activity.COLLECTIVE, Activity.PROBE),
)
_THE_WORK = [
    (position, activity)
    for position in (Position.FORWARD, Position.BACKWARD, Position.INFERENCE, Position.CLIP, Position.ZERO_GRAD)
    for activity in (Activity.OPERATOR, Activity.UNKNOWN)
] + [(Position.OPTIMIZER, Activity.UNKNOWN)]
"""Moments of no cause of their own."""
PLACES = [
    (position, activity)
    for position, activity in product(Position, Activity)
    if position not in _STOPS and activity not in _NO_SEGMENTS and (position, activity) not in _THE_WORK
]


@pytest.mark.parametrize(
    "facts", [{}, LOADER, LOADER | {"cpus": 1.0}, WORKERS], ids=["none", "loader", "full", "workers"]
)
@pytest.mark.parametrize("cause", CauseName)
def test_each_cause_in_each_place_says_first_what_to_do(cause: CauseName, facts: dict[str, Any]) -> None:
    for position, activity in PLACES if cause in _OF_SEGMENTS else PLACES[:1]:
        doing = Activity.COPY if cause is CauseName.COPIES else activity
        gpu = GpuFacts(lowered={"hw_slowdown": 0.5}) if cause is CauseName.DEVICE_CLOCKS else None
        known = facts | {"gpu": gpu, "has_device": cause is CauseName.COPIES}
        case = Case(cause, position, doing, Facts(**known), 0.02, 0.04, 0.02)
        first, *_ = advice_on(case)
        assert "py-spy" not in first, (cause, position, activity)
        if cause is not CauseName.PERIODIC:
            continue
        assert "every few steps" not in first, "it is not in every step now"


def frame(file: str, function: str = "call", folder: str = PACKAGES) -> CodeLine:
    return CodeLine(f"{folder}/{file}", function, 7)


IMAGE = frame("PIL/Image.py", "Image.resize")
CALLS_OF_LIBRARIES = (
    ("transformers/tokenization_utils_base.py", Position.LOAD, "`dataset.map(tokenize, batched=True)`"),
    ("transformers/models/bert/tokenization_bert.py", Position.AFTER_STEP, "`dataset.map(tokenize, batched=True)`"),
    ("PIL/Image.py", Position.LOAD, "Resize images once"),
    ("torchvision/transforms/functional.py", Position.LOAD, "Resize images once"),
    ("cv2/__init__.py", Position.FORWARD, "in worker processes"),
    ("pandas/core/indexing.py", Position.LOAD, "arrays or tensors of the columns"),
    ("h5py/_hl/dataset.py", Position.LOAD, "as one slice"),
    ("psycopg/cursor.py", Position.AFTER_STEP, "in one transaction"),
    ("psycopg/cursor.py", Position.LOAD, "with one query"),
    ("requests/sessions.py", Position.AFTER_STEP, "in another thread"),
    ("botocore/httpsession.py", Position.LOAD, "with one request"),
    ("wandb/sdk/wandb_run.py", Position.AFTER_STEP, "numbers only"),
    ("torch/utils/tensorboard/writer.py", Position.AFTER_STEP, "numbers only"),
    ("matplotlib/figure.py", Position.AFTER_STEP, "Draw every so many steps"),
    ("sklearn/metrics/_ranking.py", Position.AFTER_STEP, "at the end of an epoch"),
    ("numpy/lib/_histograms_impl.py", Position.AFTER_STEP, "operators of PyTorch"),
    ("torch/profiler/profiler.py", Position.AFTER_STEP, "Profile a few steps"),
)
CALLS_OF_PYTHON = (
    ("json/decoder.py", Position.LOAD, "Parse the files once"),
    ("json/encoder.py", Position.AFTER_STEP, "Write it every few steps"),
    ("logging/__init__.py", Position.AFTER_STEP, "QueueHandler"),
    ("subprocess.py", Position.AFTER_STEP, "Start this program less often"),
    ("subprocess.py", Position.LOAD, "Start the program once"),
    ("multiprocessing/process.py", Position.AFTER_STEP, "Start the processes once"),
    ("multiprocessing/queues.py", Position.LOAD, "one tensor for a whole batch"),
    ("copy.py", Position.AFTER_STEP, "`target.copy_(source)`"),
    ("random.py", Position.AFTER_STEP, "a whole batch at once"),
    ("random.py", Position.LOAD, "a whole batch at once"),
    ("gzip.py", Position.LOAD, "Unpack the files once"),
    ("re/__init__.py", Position.LOAD, "`dataset.map(tokenize, batched=True)`"),
)


@pytest.mark.parametrize(
    ("file", "position", "has"),
    [
        *((f"{PACKAGES}/{file}", position, has) for file, position, has in CALLS_OF_LIBRARIES),
        *((f"{STANDARD}/{file}", position, has) for file, position, has in CALLS_OF_PYTHON),
    ],
)
def test_the_library_that_takes_the_time_says_first_what_to_change(file: str, position: Position, has: str) -> None:
    call = library_call([CodeLine(file, "call", 7), TOKENIZE, LOOP, MAIN])
    activities = (Activity.PYTHON, Activity.FILE, Activity.SOCKET)
    for activity in activities:
        first, *_ = advice_on(Case(CauseName.SEGMENT, position, activity, Facts(), 0.02, 0.04, 0.02, call))
        assert has in first


@pytest.mark.parametrize(
    ("stack", "has"),
    [
        # what the program has called, not what that calls
        ((frame("json/encoder.py", folder=STANDARD), frame("wandb/run.py"), TOKENIZE, MAIN), "tracker"),
        ((frame("numpy/core/fromnumeric.py"), IMAGE, TOKENIZE, MAIN), "images"),
        # a bar of the progress is around the loader
        ((IMAGE, FETCH, frame("tqdm/std.py", "tqdm.__iter__"), MAIN), "images"),
        # a package that is not known
        ((IMAGE, frame("some_images/read.py"), TOKENIZE, MAIN), "images"),
        # a library that calls the program back
        ((TOKENIZE, frame("pandas/core/apply.py"), MAIN), None),
        ((TOKENIZE, LOOP, MAIN), None),
    ],
)
def test_the_first_known_library_below_the_line_of_the_program_is_the_one_that_it_calls(
    stack: tuple[CodeLine, ...], has: str | None
) -> None:
    call = library_call(stack)
    assert (call is None) == (has is None)
    assert not call or str(has) in call.beside


def test_more_workers_come_before_what_a_library_of_theirs_could_do_better() -> None:
    call = library_call([IMAGE, TOKENIZE, FETCH, WORKER_LOOP])
    few = Case(CauseName.WORKERS_TOO_FEW, Position.LOAD, Activity.LOCK, Facts(**WORKERS), 0.02, 0.04, 0.02, call)
    texts = advice_on(few)
    assert texts[0].startswith("Use more workers")
    assert texts[-1].startswith("Resize images once")
    busy = few._replace(cause=CauseName.WORKERS_SLOW, facts=Facts(workers=3, cpus=2.0, worker_cpu=1.1))
    assert advice_on(busy)[0].startswith("Resize images once")
    loads = few._replace(cause=CauseName.SEGMENT, activity=Activity.PYTHON, facts=Facts(**LOADER))
    assert [text.partition(" ")[0] for text in advice_on(loads)[:2]] == ["Load", "Resize"]
