"""Scopes that unmodified PyTorch opens by itself."""

import json
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from otel_zernel.batch import Batch
from tests.receivers.ebpf.talking import talking
from tests.receivers.ebpf.watching import Watch, attributes_of, calls, name_of, numbers, reading, require_ebpf, spans_of

STEPS = 40


def trained(watch: Watch, python: str, script: str, *arguments: object, ends_at_once: bool = False) -> "Training":
    """The receiver's readings of a training, the training's own counts, and its pid."""
    with talking(python, Path(__file__).with_name(script), *map(str, arguments)) as program:
        watch.attach()
        with reading(watch):
            program.say()
            if ends_at_once:
                program.close_input()
            done = json.loads(program.line())
        watch.read()  # reads the identity of the process while it lives
        program.close_input()
        assert program.process.wait() == 0
    return watch.read(), done, program.pid


Training = tuple[Batch, dict[str, int], int]


@pytest.fixture(scope="module")
def training(python: str) -> Training:
    """A training without workers."""
    require_ebpf()
    with Watch() as watch:
        return trained(watch, python, "train.py", 0, STEPS)


def scopes_of(batch: Batch, pid: int) -> list[Span]:
    """The spans of a process, without runs of operators."""
    return [span for span in spans_of(batch, pid) if attributes_of(span)["zernel_interval"] != "operators"]


def intervals(batch: Batch, pid: int) -> Counter[tuple[object, str]]:
    return Counter((attributes_of(span)["zernel_interval"], name_of(span)) for span in scopes_of(batch, pid))


def assert_complete(training: Training, iterator: str) -> None:
    batch, done, pid = training
    assert done["steps"] == STEPS, "the end of the data is one more scope"
    assert intervals(batch, pid) == {
        ("data_loading", f"enumerate(DataLoader)#{iterator}DataLoaderIter.__next__"): STEPS + 1,
        ("user", "my forward"): STEPS,
        ("backward", "backward"): STEPS + 3,
        ("optimizer", "Optimizer.step#AdamW.step"): STEPS,
        ("zero_grad", "Optimizer.zero_grad#AdamW.zero_grad"): STEPS,
    }, f"lost: {numbers(batch, 'zernel.ebpf.lost_events')}"
    assert calls(batch, "zernel.dataloader.wait", process_pid=pid) == STEPS + 1


def test_every_executed_scope_is_emitted(training: Training) -> None:
    assert_complete(training, "_SingleProcess")


def test_every_executed_scope_is_emitted_with_workers(watch: Watch, python: str) -> None:
    assert_complete(trained(watch, python, "train.py", 2, STEPS), "_MultiProcessing")


def test_every_scope_is_emitted_if_the_training_ends_with_its_last_step(watch: Watch, python: str) -> None:
    assert_complete(trained(watch, python, "train.py", 0, STEPS, ends_at_once=True), "_SingleProcess")


def test_an_exception_in_backward_reaches_the_job(training: Training) -> None:
    _, done, _ = training
    assert done["caught"] == 3


def test_scopes_are_in_their_phases_and_follow_each_other(training: Training) -> None:
    batch, _, pid = training
    attributes = [attributes_of(span) for span in scopes_of(batch, pid)]
    phases = {attribute["zernel_interval"]: attribute["zernel_phase"] for attribute in attributes}
    assert phases == {
        "data_loading": "data_loading",
        "user": "gpu_compute",
        "backward": "gpu_compute",
        "optimizer": "optimizer_step",
        "zero_grad": "optimizer_step",
    }
    spans = sorted(scopes_of(batch, pid), key=begin)
    assert all(span.end_time_unix_nano >= begin(span) for span in spans)
    assert all(before.end_time_unix_nano <= begin(after) for before, after in pairwise(spans))


def test_the_resource_identifies_the_process(training: Training) -> None:
    batch, _, pid = training
    resources = [attributes_of(resource_span.resource) for resource_span in batch.spans.resource_spans]
    attributes = [resource for resource in resources if resource["process_pid"] == pid][-1]
    assert str(attributes["process_executable_name"]).startswith("python")
    assert {"host_name", "process_creation_time"} <= set(attributes)


def begin(span: Span) -> int:
    return span.start_time_unix_nano
