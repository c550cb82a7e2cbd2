"""Frameworks other than PyTorch are logged, with what the receiver counts of them."""

import logging
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from otel_zernel.testing import make_context
from otel_zernel_libraries.training.frameworks import Framework
from otel_zernel_receivers.ebpf.config import EbpfConfig
from otel_zernel_receivers.ebpf.doctor import examine
from otel_zernel_receivers.ebpf.processes.scanner import Scanner, coverage
from otel_zernel_receivers.ebpf.scanning import FrameworkLog
from tests.receivers.ebpf.probes.test_marks import program_with
from tests.receivers.ebpf.processes.fake_proc import FakeProc
from tests.receivers.ebpf.standin import Standin

SITE = "/opt/venv/lib/python3.12/site-packages"
DRIVER, NCCL = "/usr/lib/libcuda.so.1", f"{SITE}/nvidia/nccl/lib/libnccl.so.2"


@pytest.fixture
def proc(tmp_path: Path) -> FakeProc:
    return FakeProc(tmp_path)


def logged(proc: FakeProc, caplog: pytest.LogCaptureFixture) -> list[str]:
    """The lines that the receiver logs during two scans."""
    caplog.set_level(logging.INFO)
    log, scanner = FrameworkLog(make_context().logger), Scanner(proc.root)
    for _ in range(2):
        log.log(scanner.scan().processes)
    return [record.getMessage() for record in caplog.records]


@pytest.mark.parametrize(
    ("mapped", "line"),
    [
        (
            [f"{SITE}/jaxlib/libjax_common.so", DRIVER, NCCL],
            "JAX in python3 17: calls of CUDA and NCCL are counted; its phases are not reported",
        ),
        (
            [f"{SITE}/jaxlib/xla_extension.so", DRIVER],
            "JAX in python3 17: calls of CUDA are counted; its phases are not reported",
        ),
        (
            [f"{SITE}/tensorflow/libtensorflow_cc.so.2"],
            "TensorFlow in python3 17: it has loaded no library of CUDA or NCCL; its phases are not reported",
        ),
        (
            [f"{SITE}/vllm/_C.abi3.so", f"{SITE}/torch/lib/libtorch_cpu.so", DRIVER, NCCL],
            "vLLM in python3 17: calls of CUDA and NCCL are counted; it serves a model, so it has no training phases",
        ),
        (
            [DRIVER],
            "CUDA without a known framework in python3 17: calls of CUDA are counted; its phases are not reported",
        ),
    ],
)
def test_a_framework_is_logged_once_with_what_the_receiver_counts(
    proc: FakeProc, caplog: pytest.LogCaptureFixture, mapped: Sequence[str], line: str
) -> None:
    proc.add(17, mapped)
    proc.add(18, mapped)
    assert logged(proc, caplog) == [line]


def test_nothing_is_logged_for_pytorch(proc: FakeProc, caplog: pytest.LogCaptureFixture) -> None:
    proc.add(17, [f"{SITE}/torch/lib/libtorch_cpu.so", f"{SITE}/tensorflow/libtensorflow_framework.so.2", DRIVER])
    assert logged(proc, caplog) == []


def test_nothing_is_logged_for_a_process_without_a_framework(proc: FakeProc, caplog: pytest.LogCaptureFixture) -> None:
    proc.add(17, ["/lib/libc.so.6", f"{SITE}/torchvision/_C.so", f"{SITE}/numpy/libjax_commons.so"])
    assert logged(proc, caplog) == []


def test_processes_that_change_their_names_do_not_fill_the_log(
    proc: FakeProc, caplog: pytest.LogCaptureFixture
) -> None:
    for pid in range(100, 300):
        proc.add(pid, [DRIVER], name=f"job {pid}")
    assert len(logged(proc, caplog)) == 100


@pytest.mark.parametrize(
    ("path", "framework"),
    [
        (f"{SITE}/jaxlib/libjax_common.so", Framework.JAX),
        (f"{SITE}/jaxlib/_jax.so", Framework.JAX),
        (f"{SITE}/jaxlib/xla_extension.so", Framework.JAX),
        (f"{SITE}/jax_plugins/xla_cuda12/xla_cuda_plugin.so", Framework.JAX),
        (f"{SITE}/tensorflow/libtensorflow_framework.so.2", Framework.TENSORFLOW),
        (f"{SITE}/tensorflow/libtensorflow_cc.so.2", Framework.TENSORFLOW),
        ("/usr/lib/libtensorflow_cc.so.2.18.0", Framework.TENSORFLOW),
        (f"{SITE}/vllm/_C.abi3.so", Framework.VLLM),
        (f"{SITE}/vllm/_C_stable_libtorch.abi3.so", Framework.VLLM),
        (f"{SITE}/torch/lib/libtorch_cpu.so", Framework.PYTORCH),
        (f"{SITE}/xgboost/lib/libxgboost.so", Framework.XGBOOST),
        (f"{SITE}/lightgbm/lib/lib_lightgbm.so", Framework.LIGHTGBM),
        (f"{SITE}/catboost/_catboost.so", Framework.CATBOOST),
        (f"{SITE}/sklearn/tree/_tree.cpython-312-x86_64-linux-gnu.so", Framework.SCIKIT_LEARN),
    ],
)
def test_frameworks_are_recognized_by_their_files(proc: FakeProc, path: str, framework: Framework) -> None:
    proc.add(17, [path])
    (process,) = Scanner(proc.root).scan().processes
    assert process.framework is framework


def test_the_framework_that_says_most_describes_a_process(proc: FakeProc) -> None:
    proc.add(17, [f"{SITE}/sklearn/tree/_tree.so", f"{SITE}/xgboost/lib/libxgboost.so", "/lib/libc.so.6"])
    (process,) = Scanner(proc.root).scan().processes
    assert process.framework is Framework.XGBOOST


def test_pytorch_is_the_only_framework_with_full_coverage() -> None:
    assert {framework for framework in Framework if not coverage(framework, ())} == {Framework.PYTORCH}


def test_doctor_names_the_framework_of_a_running_program(standin: Standin, tmp_path: Path) -> None:
    library = tmp_path / "jaxlib/libjax_common.so"
    library.parent.mkdir()
    shutil.copy(standin.cudart, library)
    with program_with(library) as pid:
        (finding,) = [one for one in examine(EbpfConfig()) if one.topic == "JAX" and str(pid) in one.text]
    assert finding.ok is None
    assert finding.text.endswith("it has loaded no library of CUDA or NCCL; its phases are not reported")
