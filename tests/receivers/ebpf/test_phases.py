"""What a thread does is counted in the phase that it is in at that moment."""

import json
import subprocess
from pathlib import Path

from otel_zernel_receivers.ebpf.watch import Watch
from tests.receivers.ebpf.standin import Standin
from tests.receivers.ebpf.test_torch import need_python_with_torch
from tests.receivers.ebpf.watching import calls

STEPS = 10


def test_every_wait_is_counted_in_its_phase_on_whatever_thread(watch: Watch, standin: Standin) -> None:
    command = [
        need_python_with_torch(),
        str(Path(__file__).with_name("train_waiting.py")),
        str(standin.cudart),
        str(STEPS),
    ]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdin
        assert program.stdout
        assert program.stdout.readline() == "ready\n"
        watch.attach()
        print(file=program.stdin, flush=True)
        waited = json.loads(program.stdout.readline())
        batch = watch.read()
    phases = ("data_loading", "gpu_compute", "optimizer_step", "unknown")
    seen = {
        phase: calls(batch, "zernel.cuda.sync.wait", process_pid=program.pid, zernel_phase=phase) for phase in phases
    }
    assert seen == waited
    assert min(seen.values()) >= STEPS
