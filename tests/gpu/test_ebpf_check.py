"""The comparison behind `make gpu-check`: with a program whose every call is known, and with real PyTorch."""

import os
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from tests.gpu import ebpf_check
from tests.gpu.profiler_trace import BETWEEN, Event, count
from tests.gpu.quantities import compare, recorded, table
from tests.gpu.watched import JOB, ROOT, batches_of, collector
from tests.receivers.ebpf.jobs.pytorch.torches import OWN, python_of
from tests.receivers.ebpf.standin import Standin
from tests.receivers.ebpf.watching import require_ebpf

SCRIPT = {
    "cudaLaunchKernel times=100 threads=3": {"launches": 300},
    "cuLaunchKernel times=7": {"launches": 7},
    "cudaGraphLaunch times=2": {"launches": 2},
    "cudaMemcpyAsync kind=1 size=1000 times=5": {"copies, host_to_device": 5, "bytes of copies, host_to_device": 5000},
    "cudaMemcpy kind=2 size=9": {
        "copies, device_to_host": 1,
        "bytes of copies, device_to_host": 9,
        "waits for the GPU": 1,
    },
    "cudaMalloc size=4096 times=4": {"allocations": 4, "memory at the end, bytes": 4 * 4096},
    "cudaFree": {"frees": 1, "memory at the end, bytes": -4096},
    "cudaStreamSynchronize times=3": {"waits for the GPU": 3},
    "ncclAllReduce count=256 times=6": {
        "launches": 6,
        "collectives, all_reduce": 6,
        "bytes of collectives, all_reduce": 6144,
    },
    "cudaDeviceSynchronize": {"waits for the GPU": 1},
}
"""Commands of the program, and the quantities that each of them adds."""


def test_the_collector_records_every_action_of_a_program(standin: Standin, tmp_path: Path) -> None:
    require_ebpf()
    name, did = uuid.uuid4().hex, dict.fromkeys((quantity for one in SCRIPT.values() for quantity in one), 0)
    with standin.start(environment={JOB: name}) as program:
        for command in ("load libcudart.so.12", "load libcuda.so.1", "load libnccl.so.2", "ncclCommInitRank ranks=1"):
            program.do(command)
        with collector(tmp_path, name) as output:
            for command, effect in SCRIPT.items():
                program.do(command)
                for quantity, number in effect.items():
                    did[quantity] += number
        rows = compare(did, recorded(batches_of(output), program.pid))
    # The program has no scopes, so its phases are undefined.
    assert [row for row in rows if not row.agree and not row.name.startswith("seconds")] == []
    assert {row.name for row in rows} >= set(did)


def test_scopes_and_phases_of_a_training_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    require_ebpf()
    python_of(OWN)
    ebpf_check.main(tmp_path / "report", steps=10)
    head, counts, _, *rows = capsys.readouterr().out.splitlines()
    if "no GPU" in head:
        assert rows.pop() == "PyTorch finds no GPU: only scopes and phases were compared, and no report was written."
        assert not (tmp_path / "report").exists()
    assert head.startswith("PyTorch 2")
    assert counts.startswith(f"{len(rows)} quantities")
    assert [row for row in rows if row.startswith("DIFFERS") and "seconds" not in row] == []
    assert sum("scopes" in row for row in rows) == 5
    assert sum("seconds" in row for row in rows) >= 3


def test_without_pytorch_it_prints_one_sentence() -> None:
    environ = {**os.environ, "TORCH_PYTHON": "false"}
    command = [sys.executable, "-m", "tests.gpu.ebpf_check"]
    ran = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, check=False)
    assert ran.returncode == 0
    assert ran.stdout == "Nothing to check: false has no PyTorch; see tests/gpu/README.md.\n"


def test_differences_are_reported() -> None:
    did = {"launches": 10, "allocations": 3, "seconds, gpu_compute": 9.0, "seconds, data_loading": 1.0}
    received = {"launches": 9, "frees": 2, "allocations": 3, "seconds, gpu_compute": 8.6, "seconds, data_loading": 1.6}
    rows = compare(did, received)
    assert {row.name for row in rows if not row.agree} == {"launches", "frees", "seconds, data_loading"}
    (line,) = [line for line in table(rows) if "launches" in line]
    assert line.split() == ["DIFFERS", "launches", "10", "9", "-1"]


def event(category: str, name: str, ts: int, **args: object) -> Event:
    return {"ph": "X", "cat": category, "name": name, "ts": ts, "dur": 5, "args": args}


def test_a_trace_contains_the_calls_of_its_region() -> None:
    region = {**event("user_annotation", BETWEEN, 100), "dur": 100}
    inside = [
        event("cuda_runtime", "cudaLaunchKernel", 110, correlation=1),
        event("kernel", "elementwise", 112, correlation=1),
        event("cuda_runtime", "cudaGraphLaunch", 120, correlation=2),
        event("kernel", "gemm", 121, correlation=2),
        event("kernel", "gemm", 122, correlation=2),
        event("cuda_runtime", "cudaMemcpyAsync", 130, correlation=3),
        event("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", 131, correlation=3, bytes=64),
        event("cuda_runtime", "cudaStreamSynchronize", 140),
        event("cuda_runtime", "cudaStreamWaitEvent", 141),
        event("cuda_driver", "cuCtxSynchronize", 142),
        event("cuda_runtime", "cudaMalloc", 150),
        event("cuda_runtime", "cudaFree", 151),
        event("cuda_runtime", "cudaFreeHost", 152),
        {"ph": "M", "name": "process_name", "ts": 150},
    ]
    outside = [event("kernel", "gemm", 90, correlation=9), event("cuda_runtime", "cudaMalloc", 210)]
    assert count([region, *inside, *outside]) == {
        "launches": 2,
        "copies, host_to_device": 1,
        "bytes of copies, host_to_device": 64,
        "waits for the GPU": 2,
        "allocations": 1,
        "frees": 1,
    }
