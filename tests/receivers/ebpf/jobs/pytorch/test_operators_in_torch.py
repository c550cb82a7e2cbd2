"""Runs of operators in real PyTorch: every pass of every loop has one, and nothing else has."""

import json
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from otel_zernel.batch import Batch
from otel_zernel_receivers.ebpf.config import EbpfConfig
from tests.receivers.ebpf.talking import Talker, started
from tests.receivers.ebpf.watching import Watch, attributes_of, numbers, reading, require_ebpf, spans_of

ROOT = Path(__file__).parents[5]
NAMES = {"backward": "backward", "optimizer": "step", "zero_grad": "zero"}
CASES = (
    *("nano", "rollout", "policy_gradient", "greedy", "closure", "lbfgs", "generation", "validation", "keras"),
    *("another_thread", "recomputed", "functions", "evaluation", "failing"),
    *("recurrent", "graph", "products", "convolutional"),
)


@pytest.fixture(scope="module")
def watch() -> Iterator[Watch]:
    """One session for all cases."""
    require_ebpf()
    with Watch(EbpfConfig(max_overhead=0)) as watch:
        yield watch


class Case(NamedTuple):
    """A program that has run a case."""

    batch: Batch
    """The receiver's readings."""
    pid: int
    began: int
    """Unix time, ns. Spans before it are of the warm-up."""
    made: Any
    """What the program noted: here, the passes that it made."""

    @property
    def spans(self) -> list[Span]:
        """In order."""
        spans = (span for span in spans_of(self.batch, self.pid) if span.start_time_unix_nano >= self.began)
        return sorted(spans, key=lambda span: span.start_time_unix_nano)


def running(python: str, module: str, *arguments: str) -> AbstractContextManager[Talker]:
    """A program of this folder that runs cases, each in a child."""
    return started(python, "-m", f"tests.receivers.ebpf.jobs.pytorch.{module}", *arguments, cwd=ROOT)


@pytest.fixture(scope="module")
def trainer(python: str) -> Iterator[Talker]:
    with running(python, "train_operators") as trainer:
        yield trainer


def done(watch: Watch, trainer: Talker, case: str) -> Case:
    watch.taken()
    pid = int(trainer.ask(case))
    watch.attach()
    began = time.time_ns()
    with reading(watch):
        made = json.loads(trainer.ask())
        assert trainer.ask() == "ended"
    return Case(watch.read(), pid, began, made)


def pass_of(span: Span) -> str:
    attributes = attributes_of(span)
    if attributes["zernel_interval"] != "operators":
        return NAMES[str(attributes["zernel_interval"])]
    if attributes["zernel_operators_kind"] == "update":
        return "update"
    return "forward" if attributes["zernel_grad"] else "without grad"


def passes(spans: list[Span]) -> list[str]:
    """The passes. Parts of one pass, between which the machine did something else, are one."""
    some = (
        span for span in spans if attributes_of(span).get("zernel_operators_kind") not in ("batch", "noise", "in_place")
    )
    return [name for name, _ in groupby(map(pass_of, some))]


@pytest.mark.parametrize("case", CASES)
def test_every_pass_has_a_run_and_nothing_else_has(watch: Watch, trainer: Talker, case: str) -> None:
    ran = done(watch, trainer, case)
    expected = [name for name, _ in groupby(ran.made)]
    assert passes(ran.spans) == expected, f"lost: {numbers(ran.batch, 'zernel.ebpf.lost_events')}"


@pytest.mark.parametrize("case", ["policy_gradient", "greedy"])
def test_each_action_of_a_policy_is_a_run(watch: Watch, trainer: Talker, case: str) -> None:
    ran = done(watch, trainer, case)
    assert list(map(pass_of, ran.spans)).count("forward") >= ran.made.count("forward")


def test_rollouts_are_merged_and_no_region_is_lost(watch: Watch, trainer: Talker) -> None:
    ran = done(watch, trainer, "rollout")
    runs = [one for one in map(attributes_of, ran.spans) if one.get("zernel_grad") is False]
    actions = 50 * ran.made.count("forward")
    each = sum(int(str(run["zernel_operators_count"])) for run in runs) / actions
    assert each in (2, 3), "a product and a sample; before PyTorch 2.6 the product calls another operator"
    assert len(runs) < 25 * ran.made.count("forward")


def test_the_closure_is_inside_the_optimizer_s_scope(watch: Watch, trainer: Talker) -> None:
    spans = done(watch, trainer, "closure").spans
    steps = [span for span in spans if pass_of(span) == "step"]
    runs = [span for span in spans if pass_of(span) == "forward"]
    assert runs
    for run in runs:
        assert any(
            step.start_time_unix_nano <= run.start_time_unix_nano <= run.end_time_unix_nano <= step.end_time_unix_nano
            for step in steps
        )


def test_the_runs_of_another_thread_have_its_id(watch: Watch, trainer: Talker) -> None:
    ran = done(watch, trainer, "another_thread")
    (thread,) = {attributes_of(span)["thread_id"] for span in ran.spans}
    assert thread != ran.pid


def test_marks_take_less_than_a_half_percent_of_a_step(watch: Watch, trainer: Talker) -> None:
    """Counted, not timed: a hit takes about 0.8 us, and a step of 30 ms allows 150 us.

    On the CPU, AdamW changes each tensor on its own, with four hits for each.
    """
    ran = done(watch, trainer, "nano")
    hits = sum(numbers(ran.batch, "zernel.probe.hits", process_pid=ran.pid))
    assert hits / ran.made.count("step") < 2 * 110, "warm-up and measured part"


def test_a_process_lacks_no_mark(watch: Watch, trainer: Talker) -> None:
    watch.taken()
    pid = int(trainer.ask("nano"))
    watch.attach()
    assert numbers(watch.read(), "zernel.ebpf.missing_marks", process_pid=pid) == []
    assert json.loads(trainer.ask())
    assert trainer.ask() == "ended"
