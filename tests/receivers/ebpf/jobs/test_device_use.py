"""The use of a GPU in the reports of `phases`, from a job whose device keeps the truth."""

from pathlib import Path

import numpy as np
import pytest

from tests.processors.phases.processing import run
from tests.processors.phases.training import values_of
from tests.receivers.ebpf.standin import Standin
from tests.receivers.ebpf.watching import Watch

STEPS = 40
STEP = """
open enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__
sleep ms=15
close
addmm times=5
cudaLaunchKernel times=10 work=2000000
THPEngine_run_backward
open Optimizer.step#AdamW.step
cudaLaunchKernel times=2 work=1000000
close
cudaDeviceSynchronize
""".strip().splitlines()
LIBRARIES = ("libtorch_cpu.so", "libtorch_python.so", "libcudart.so.12")


def test_a_gpu_that_starves_while_data_loads_is_reported_so(watch: Watch, standin: Standin, tmp_path: Path) -> None:
    kernels = tmp_path / "kernels"
    with standin.start(environment={"STANDIN_KERNELS": str(kernels)}) as program:
        for library in LIBRARIES:
            program.do(f"load {library}")
        watch.attach()
        for _ in range(STEPS):
            for command in STEP:
                program.do(command)
        made = run(watch.read())
    begins, ends = np.fromfile(kernels, np.uint64).reshape(-1, 2).T.astype(np.int64)
    lasted = (ends[-1] - begins[0]) / 1e9
    busy = float((ends - begins).sum()) / 1e9
    starved = {
        (str(at["zernel.position"]), str(at["zernel.activity"])): s
        for at, s in values_of(made, "zernel.gpu.starved.time")
    }
    assert max(starved, key=lambda at: starved[at]) == ("load", "timer")
    assert starved["load", "timer"] > 0.9 * STEPS * 0.015
    assert sum(starved.values()) < 1.05 * (lasted - busy) + 0.05
    ((_, known_busy),) = values_of(made, "zernel.gpu.busy.time")[-1:]
    assert 0.5 * busy < known_busy < 1.1 * busy
    ((_, open_),) = values_of(made, "zernel.gpu.undetermined.time")[-1:]
    assert sum(starved.values()) + known_busy + open_ == pytest.approx(lasted, rel=0.15)
