"""The traces of a real job of four ranks, read back from three collectors that attach at different moments."""

import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from otel_zernel.batch import Batch
from otel_zernel.testing import make_context
from otel_zernel_processors.phases import PhasesProcessor
from tests.processors.phases.synchronous import named, number_of, of_job
from tests.processors.phases.training import spans_of
from tests.receivers.ebpf.talking import Talker, talking
from tests.receivers.ebpf.watching import Watch, require_ebpf

RANKS = 4
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={RANKS}"]
SCRIPT = Path(__file__).with_name("train_ranks.py")
PATIENCE_S = 200
FEWEST = 30
"""Steps that each collector sees. It sees more, unless the machine is very busy."""
EARLY = 20
"""Steps that the first two collectors have read when the third one attaches."""
SETTINGS = {"interval": "1s", "window": "10s", "max_spans": 100_000, "traces": {"sample": 1, "max_steps": 100_000}}


class Traces(NamedTuple):
    """The job's traces by their id, at each collector."""

    first: dict[bytes, list[Span]]
    second: dict[bytes, list[Span]]
    late: dict[bytes, list[Span]]
    """Of the collector that attaches while the job trains."""


@pytest.fixture(scope="module")
def traces(python: str, tmp_path_factory: pytest.TempPathFactory) -> Traces:
    """Two collectors attach one after the other before the job starts, the third one while it trains."""
    require_ebpf()
    folder = tmp_path_factory.mktemp("job")
    with ExitStack() as stack:
        stack.enter_context(pytorch(python))
        collectors = [stack.enter_context(Watch()) for _ in range(3)]
        for early in collectors[:2]:
            early.attach()
        job = stack.enter_context(subprocess.Popen([python, *TORCHRUN, SCRIPT, folder]))
        stack.callback((folder / "end").touch)
        read_until((folder / "started").exists, collectors[:2])
        read_until(lambda: all(updates_in(collector) >= EARLY * RANKS for collector in collectors[:2]), collectors[:2])
        collectors[2].attach()
        read_until(lambda: all(updates_in(collector) >= FEWEST * RANKS for collector in collectors), collectors)
        (folder / "end").touch()
        assert job.wait() == 0
        return Traces(*(job_traces_of(collector.read()) for collector in collectors))


def pytorch(python: str) -> AbstractContextManager[Talker]:
    """A process with PyTorch: collectors attach to its libraries, so that all probes are on when the job starts."""
    return talking(python, "-c", "import torch; print('ready', flush=True); input()")


def read_until(is_met: Callable[[], bool], collectors: Iterable[Watch]) -> None:
    """Attaches and reads as receivers do until the condition is met: to search a library on a cold disk takes more than
    one scan."""
    patient_until = time.monotonic() + PATIENCE_S
    while not is_met():
        assert time.monotonic() < patient_until, "the job trains too slowly"
        for collector in collectors:
            collector.attach()
            collector.read()
        time.sleep(0.2)


def updates_in(collector: Watch) -> int:
    """The number of optimizer steps that a collector has read."""
    return sum(span.name.startswith("Optimizer.step") for span in spans_of([collector.read()]))


def job_traces_of(batch: Batch) -> dict[bytes, list[Span]]:
    """The traces of the job's steps that the phases processor makes."""
    processor = PhasesProcessor(PhasesProcessor.Config.model_validate(SETTINGS), make_context("processors", "phases"))
    return of_job(spans_of([*processor.process(batch), *processor.flush()]))


def whole(traces: dict[bytes, list[Span]]) -> dict[bytes, list[Span]]:
    """The traces with a step of every rank."""
    return {trace_id: trace for trace_id, trace in traces.items() if len(named(trace, "step")) == RANKS}


@pytest.mark.timeout(300)  # four ranks load PyTorch on a machine that may have two CPUs
@pytest.mark.parametrize("collector", Traces._fields)
def test_each_step_is_one_trace_of_all_ranks(traces: Traces, collector: str) -> None:
    steps = whole(getattr(traces, collector))
    assert len(steps) >= FEWEST / 2
    for trace in steps.values():
        (root,) = named(trace, "job step")
        assert {span.parent_span_id for span in named(trace, "step")} == {root.span_id}
        assert {number_of(span) for span in named(trace, "step")} == {number_of(root)}
    numbers = Counter(number_of(named(trace, "step")[0]) for trace in steps.values())
    assert max(numbers.values()) == 1, "no step is in two traces"


@pytest.mark.timeout(300)
@pytest.mark.parametrize("later", ["second", "late"])
def test_collectors_that_attach_at_different_moments_make_the_same_ids(traces: Traces, python: str, later: str) -> None:
    if later == "late" and "/2.1." in python:
        pytest.skip("gloo numbers its collectives in newer releases of PyTorch")
    made = traces.first, getattr(traces, later)
    one, other = ({trace_id: ids_of(trace) for trace_id, trace in whole(some).items()} for some in made)
    both = one.keys() & other.keys()
    assert len(both) >= FEWEST / 2
    assert {trace_id: one[trace_id] for trace_id in both} == {trace_id: other[trace_id] for trace_id in both}


def ids_of(trace: list[Span]) -> set[bytes]:
    """The ids of the job's step and of those of its ranks."""
    return {span.span_id for name in ("job step", "step") for span in named(trace, name)}
