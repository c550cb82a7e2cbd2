"""The use of a device that is a thread of its own, behind the stand-in for libcuda."""

from pathlib import Path

import numpy as np
import pytest

from otel_zernel_libraries.training.device import Launches, Segment, Stream, device_use
from otel_zernel_libraries.training.ledger import Activity, Position
from tests.receivers.ebpf.standin import Calls, Standin

STEPS = 40
KERNELS = 10
"""Kernels of a step: 2 ms each. The thread sleeps for 15 ms before it launches them."""


def job(standin: Standin, folder: Path, sync_every: int) -> tuple[list[Segment], Path]:
    """The segments of a job on the stand-in, and the file with the work of its device."""
    kernels = folder / "kernels"
    with standin.start(environment={"STANDIN_KERNELS": str(kernels)}, loads=["libcudart.so.12"]) as program:
        program.do("cudaDeviceSynchronize")
        for step in range(1, STEPS + 1):
            program.do("sleep ms=15")
            program.do(f"cudaLaunchKernel times={KERNELS} work=2000000")
            if step % sync_every == 0:
                program.do("cudaDeviceSynchronize")
    return segments_of(program.log), kernels


def segments_of(log: Calls) -> list[Segment]:
    """A load until the first launch of a step, then its launches, and a wait if one follows."""
    segments: list[Segment] = []
    end = int(log[0]["end"])
    calls = [(call["name"].decode(), int(call["start"]), int(call["end"])) for call in log[1:]]
    for at, (name, start, until) in enumerate(calls):
        if name == "cudaLaunchKernel" and (
            at == 0 or at % KERNELS == 0 or calls[at - 1][0] != name or start - end > 10**7
        ):
            segments.append(Segment(end, start, Position.LOAD, activities={Activity.TIMER: start - end}))
            segments.append(Segment(start, until, Position.FORWARD, (Launches(1, start, start),)))
        elif name == "cudaLaunchKernel":
            last = segments.pop()
            launches = Launches(last.launches[0].count + 1, last.launches[0].first, start)
            segments.append(Segment(last.begin, until, Position.FORWARD, (launches,)))
        else:
            drains = frozenset({Stream.COMPUTE})
            segments.append(Segment(end, until, Position.CLIP, wait=until - start, drains=drains))
        end = until
    return segments


@pytest.mark.parametrize("sync_every", [1, 8])
def test_the_starved_time_of_a_device_with_a_thread_of_its_own_is_known(
    standin: Standin, tmp_path: Path, sync_every: int
) -> None:
    segments, kernels = job(standin, tmp_path, sync_every)
    begins, ends = np.fromfile(kernels, np.uint64).reshape(-1, 2).T.astype(np.int64)
    assert len(begins) == STEPS * KERNELS
    begin, end = segments[0].begin, segments[-1].end
    truth = 1 - (np.minimum(ends, end) - np.maximum(begins, begin)).sum() / (end - begin)
    use = device_use(segments)
    assert use
    low, best, high = (bound / use.seconds for bound in use.starved())
    assert low - 0.05 < truth < high + 0.05
    assert best == pytest.approx(truth, abs=0.05)
    assert use.starved(Position.LOAD, Activity.TIMER).best / use.seconds == pytest.approx(best, abs=0.05)
