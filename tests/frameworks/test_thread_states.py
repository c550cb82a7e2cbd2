"""Programs without PyTorch's scopes: the states of their threads agree with their own log."""

import pytest

from benchmarks.training.runs import Run
from otel_zernel.testing import make_context
from otel_zernel_processors.phases import PhasesProcessor
from tests.frameworks.running import require_frameworks, run
from tests.frameworks.thread_states import states_of, waits_in
from tests.processors.phases.training import values_of
from tests.receivers.ebpf.watching import require_ebpf
from tests.waiting import measured


@pytest.mark.timeout(900)
@pytest.mark.parametrize("share", [0.5, pytest.param(0.95, marks=pytest.mark.soak)])
def test_jax_waits_for_the_gpu_as_long_as_it_says(share: float) -> None:
    require_ebpf()
    require_frameworks()
    batches, (truth,) = measured(lambda: run("JAX"), lambda found: is_close(found, share))
    assert is_close((batches, [truth]), share), (states_of(batches, truth["pid"]), truth)
    processor = PhasesProcessor(PhasesProcessor.Config(), make_context("processors", "phases"))
    made = [*(out for batch in batches for out in processor.process(batch)), *processor.flush()]
    of_job = [(at, value) for at, value in values_of(made, "zernel.phase.time") if at["process.pid"] == truth["pid"]]
    assert {str(attributes["zernel.phase.source"]) for attributes, _ in of_job} == {"threads"}


def is_close(run_of_jax: Run, share: float) -> bool:
    batches, (truth,) = run_of_jax
    waits, earlier = waits_in(truth)
    loop = (truth["loop"][1] - truth["loop"][0]) / 1e9
    states = states_of(batches, truth["pid"])
    # The calls lie inside the marks, and a busy machine may pause the program between a mark and its call. The receiver
    # sees all of the loop, and a part of the rounds before it.
    return share * waits < states["gpu_wait"] <= waits + earlier and sum(states.values()) >= loop
