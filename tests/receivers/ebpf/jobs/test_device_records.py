"""The use of a GPU by its own records, which a CUPTI library in the job passes on by USDT."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from otel_zernel_libraries.training.interval_spans import DeviceSpan, interval_of
from tests.otlp import spans_in
from tests.processors.phases.processing import run
from tests.processors.phases.training import values_of
from tests.receivers.ebpf.standin import Standin
from tests.receivers.ebpf.watching import Watch

STEPS = 60
STEP = """
open enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__
sleep ms=15
close
addmm times=5
cudaLaunchKernel times=10 work=2000000
THPEngine_run_backward
sleep ms=5
open Optimizer.step#AdamW.step
cudaLaunchKernel times=2 work=1000000
close
""".strip().splitlines()
LIBRARIES = ("libtorch_cpu.so", "libtorch_python.so", "libcudart.so.12")


def busy_between(begin: float, end: float, begins: Any, ends: Any) -> float:
    return float(np.clip(np.minimum(ends, end) - np.maximum(begins, begin), 0, None).sum()) / 1e9


@pytest.mark.parametrize("library", ["cupti", "old_cupti"])
def test_the_records_of_a_device_decide_when_it_was_busy(
    fresh_watch: Watch, standin: Standin, tmp_path: Path, library: str
) -> None:
    kernels = tmp_path / "kernels"
    environment = {"STANDIN_KERNELS": str(kernels), "CUDA_INJECTION64_PATH": str(getattr(standin, library))}
    with standin.start(environment=environment) as program:
        for name in LIBRARIES:
            program.do(f"load {name}")
        program.do("cudaDeviceSynchronize")  # loads the driver, which loads the library
        fresh_watch.attach()
        for _ in range(STEPS):
            for command in STEP:
                program.do(command)
        program.do("cudaDeviceSynchronize")
        read = fresh_watch.read()
        offset = fresh_watch.session._spans.offset_ns
    begins, ends = np.fromfile(kernels, np.uint64).reshape(-1, 2).T.astype(np.int64) + offset
    records = [span for span in map(interval_of, spans_in(read.spans)) if isinstance(span, DeviceSpan)]
    # the program holds the last records back until more follow
    until = max(span.end_ns for span in records)
    recorded = sum(sum(span.busy) / 255 / len(span.busy) * (span.end_ns - span.start_ns) for span in records) / 1e9
    assert recorded == pytest.approx(busy_between(begins[0], until, begins, ends), rel=0.02)
    made = run(read)
    ((_, undetermined),) = values_of(made, "zernel.gpu.undetermined.time")[-1:]
    ((_, busy),) = values_of(made, "zernel.gpu.busy.time")[-1:]
    starved = sum(s for _, s in values_of(made, "zernel.gpu.starved.time"))
    assert undetermined < 0.25 * (busy + starved), "only the time after the last record that the program passed on"
    truth = 1 - busy_between(begins[0], until, begins, ends) / ((until - begins[0]) / 1e9)
    assert starved / (starved + busy) == pytest.approx(truth, abs=0.02)
