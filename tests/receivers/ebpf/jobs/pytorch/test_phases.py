"""A call is counted in the phase of its thread."""

import textwrap
from contextlib import AbstractContextManager

from opentelemetry.proto.trace.v1.trace_pb2 import Span

from otel_zernel.batch import Batch
from tests.receivers.ebpf.jobs.pytorch.test_torch import trained
from tests.receivers.ebpf.standin import Standin
from tests.receivers.ebpf.talking import Talker, talking
from tests.receivers.ebpf.watching import Watch, calls, doubles, spans_of

STEPS = 10


def test_every_wait_is_counted_in_its_phase_on_any_thread(watch: Watch, standin: Standin, python: str) -> None:
    batch, waited, pid = trained(watch, python, "train_waiting.py", standin.cudart, STEPS)
    phases = ("data_loading", "gpu_compute", "optimizer_step", "unknown")
    counted = {phase: calls(batch, "zernel.cuda.sync.wait", process_pid=pid, zernel_phase=phase) for phase in phases}
    assert counted == waited
    assert min(counted.values()) >= STEPS


STALLING = """
    import sys, time, torch
    from torch.utils.data import DataLoader

    def say(text):
        print(text, flush=True)

    class Data:
        def __len__(self):
            return 2

        def __getitem__(self, index):
            say("loading")
            sys.stdin.readline()
            return torch.ones(1)

    say("ready")
    sys.stdin.readline()
    for batch in DataLoader(Data()):
        say("computing")
        sys.stdin.readline()
"""


def stalling(python: str) -> AbstractContextManager[Talker]:
    """A loop over a DataLoader. It prints where it is, and continues after each line of input."""
    return talking(python, "-c", textwrap.dedent(STALLING))


def elapsed(watch: Watch, pid: int, phase: str) -> float:
    """Seconds since the process entered its current phase, which must be `phase`."""
    batch = watch.read()
    watch.taken()
    (found,) = doubles(batch, "zernel.phase.elapsed", process_pid=pid)
    assert doubles(batch, "zernel.phase.elapsed", process_pid=pid, zernel_phase=phase) == [found]
    return found


def test_a_phase_is_emitted_before_it_ends(watch: Watch, python: str) -> None:
    with stalling(python) as program:
        watch.attach()
        for phase in ("data_loading", "gpu_compute", "data_loading"):
            assert program.ask() == {"data_loading": "loading", "gpu_compute": "computing"}[phase]
            first = elapsed(watch, program.pid, phase)
            assert 0 < first < elapsed(watch, program.pid, phase), "the phase continues"


def scopes_of(batch: Batch, pid: int) -> list[Span]:
    """Its spans without the run of operators that draws the seed of an iterator."""
    return [span for span in spans_of(batch, pid) if span.name != "operators"]


def test_the_scope_in_which_a_process_dies_is_emitted(watch: Watch, python: str) -> None:
    with stalling(python) as program:
        watch.attach()
        assert program.ask() == "loading"
        assert scopes_of(watch.read(), program.pid) == []
        program.kill()
        (span,) = scopes_of(watch.read(), program.pid)
    assert span.name.startswith("enumerate(DataLoader)#")
    assert span.status.code == span.status.STATUS_CODE_ERROR


def test_without_scopes_no_phase_is_emitted(watch: Watch, standin: Standin) -> None:
    with standin.start(loads=["libcudart.so.12"]) as program:
        watch.attach()
        program.do("cudaDeviceSynchronize")
        assert doubles(watch.read(), "zernel.phase.elapsed", process_pid=program.pid) == []
