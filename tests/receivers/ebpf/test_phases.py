"""What a thread does is counted in the phase that it is in at that moment."""

from otel_zernel_receivers.ebpf.watch import Watch
from tests.receivers.ebpf.standin import Standin
from tests.receivers.ebpf.test_torch import trained
from tests.receivers.ebpf.watching import calls

STEPS = 10


def test_every_wait_is_counted_in_its_phase_on_whatever_thread(watch: Watch, standin: Standin) -> None:
    batch, waited, pid = trained(watch, "train_waiting.py", standin.cudart, STEPS)
    phases = ("data_loading", "gpu_compute", "optimizer_step", "unknown")
    seen = {phase: calls(batch, "zernel.cuda.sync.wait", process_pid=pid, zernel_phase=phase) for phase in phases}
    assert seen == waited
    assert min(seen.values()) >= STEPS
