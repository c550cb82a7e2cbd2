"""Percentiles of latencies, compared with those of the program's own log."""

import re
from pathlib import Path

import numpy as np

from tests.receivers.ebpf.standin import Program, Standin
from tests.receivers.ebpf.watching import Watch, doubles, histogram_points

LENGTHS = (10**6, 3 * 10**6, 10**7, 2 * 10**7)
"""Durations of waits, ns."""
EACH = 20
"""Waits of each duration."""
BUCKET = 1 / 128
"""The width of an HDR bucket with 2 significant figures, as a ratio of its value."""


def preemptions(program: Program) -> int:
    """How often the kernel has preempted the program."""
    (count,) = re.findall(r"nonvoluntary_ctxt_switches:\t(\d+)", Path(f"/proc/{program.pid}/status").read_text())
    return int(count)


def test_percentiles_agree_with_the_program_s_own_log(watch: Watch, standin: Standin) -> None:
    with standin.start(loads=["libcudart.so.12"]) as program:
        watch.attach()
        before = preemptions(program)
        for length in LENGTHS * EACH:
            program.send(f"cudaLaunchKernel work={length}")
            program.send("cudaDeviceSynchronize")
        program.wait()
        preempted = preemptions(program) - before
        batch = watch.read()
    log = program.calls("cudaDeviceSynchronize")
    truth = np.sort(log["end"] - log["start"]).astype(float)
    (floor,) = doubles(batch, "zernel.probe.floor")
    (point,) = histogram_points(batch, "zernel.cuda.sync.wait", process_pid=program.pid)
    counted = np.repeat([*point.explicit_bounds, np.inf], point.bucket_counts) * 1e9
    assert len(counted) == len(truth) == len(LENGTHS) * EACH
    # The program reads its clock before and after the probes. So the receiver's duration of a call is never longer, and
    # shorter by the time between clock and probe. A preemption in that time changes the call's rank.
    assert (counted <= truth * (1 + BUCKET)).all()
    for percent in (12, 25, 37, 50, 62, 75, 87, 99):
        rank = len(truth) * percent // 100
        least = truth[max(rank - 1 - preempted, 0)]
        assert counted[rank] >= least * (1 - BUCKET) - floor * 1e9, f"percentile {percent}"
