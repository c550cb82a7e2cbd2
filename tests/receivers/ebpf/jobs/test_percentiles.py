"""Percentiles of latencies beside those of the program's own log."""

import re
from pathlib import Path

import numpy as np

from tests.receivers.ebpf.standin import Program, Standin
from tests.receivers.ebpf.watching import Watch, doubles, histogram_points

LENGTHS = (10**6, 3 * 10**6, 10**7, 2 * 10**7)
"""Of waits, in ns, and as many of each."""
EACH = 20
BUCKET = 1 / 128
"""The width of an HDR bucket of 2 digits, as a share of the value."""


def preemptions(program: Program) -> int:
    """How often the kernel has taken the CPU from the program."""
    (count,) = re.findall(r"nonvoluntary_ctxt_switches:\t(\d+)", Path(f"/proc/{program.pid}/status").read_text())
    return int(count)


def test_percentiles_are_those_of_the_programs_own_log(watch: Watch, standin: Standin) -> None:
    with standin.start() as program:
        program.do("load libcudart.so.12")
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
    seen = np.repeat([*point.explicit_bounds, np.inf], point.bucket_counts) * 1e9
    assert len(seen) == len(truth) == len(LENGTHS) * EACH
    # Probes are inside of the program's own clocks: a call never reads longer, and shorter by what lies outside of the
    # probes. Where the CPU was taken away just there, that is any time, and the call has another rank.
    assert (seen <= truth * (1 + BUCKET)).all()
    for percent in (12, 25, 37, 50, 62, 75, 87, 99):
        rank = len(truth) * percent // 100
        least = truth[max(rank - 1 - preempted, 0)]
        assert seen[rank] >= least * (1 - BUCKET) - floor * 1e9, f"percentile {percent}"
