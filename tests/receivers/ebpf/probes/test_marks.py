"""Missing marks of PyTorch are reported in the log, by doctor and in a metric."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from otel_zernel.batch import points
from otel_zernel_receivers.ebpf.config import EbpfConfig
from otel_zernel_receivers.ebpf.doctor import examine
from otel_zernel_receivers.ebpf.probes.calls import CallKind
from otel_zernel_receivers.ebpf.probes.catalogue import TORCH_CPU
from otel_zernel_receivers.ebpf.probes.libraries import PROBES
from otel_zernel_receivers.ebpf.probes.marks import Mark, missing_marks, sentence
from otel_zernel_receivers.ebpf.processes.files.used_files import MappedLibrary
from tests.receivers.ebpf.standin import Standin
from tests.receivers.ebpf.talking import talking
from tests.receivers.ebpf.watching import Watch, attributes_of, metrics_of


@contextmanager
def program_with(library: Path) -> Iterator[int]:
    """The pid of a program that has loaded the library."""
    code = "import ctypes, sys; ctypes.CDLL(sys.argv[1]); print('ready', flush=True); sys.stdin.read()"
    with talking(sys.executable, "-c", code, library) as program:
        yield program.pid


@pytest.fixture
def stripped(standin: Standin, tmp_path: Path) -> Path:
    """A libtorch_python.so with only its exported symbols."""
    library = tmp_path / "libtorch_python.so"
    subprocess.run(["strip", "-o", library, standin.cudart.with_name(library.name)], check=True)
    return library


def test_a_library_with_all_its_functions_lacks_nothing() -> None:
    for probes in PROBES.values():
        assert missing_marks(probes, probes) == {}


@pytest.mark.parametrize(
    ("absent", "functions"),
    [
        ({CallKind.WORK_WAIT_END}, "returns of c10d::Work::wait"),
        ({CallKind.WORK_WAIT}, "c10d::Work::wait"),
        ({CallKind.WORK_WAIT, CallKind.WORK_WAIT_END}, "c10d::Work::wait"),
    ],
)
def test_a_wait_needs_its_entry_and_a_return(absent: set[CallKind], functions: str) -> None:
    missing = missing_marks(TORCH_CPU, [probe for probe in TORCH_CPU if probe.kind not in absent])
    assert missing == {Mark.COLLECTIVE_WAIT: functions}
    expected = f"libtorch_cpu.so lacks {functions}: waits of torch.distributed are not reported"
    assert sentence("libtorch_cpu.so", missing, is_stripped=True) == expected


def test_a_library_without_any_function_lacks_all_marks() -> None:
    missing = {mark for library in MappedLibrary for mark in missing_marks(PROBES.get(library, ()), ())}
    assert missing == set(Mark)


def test_doctor_names_the_function_that_a_stripped_library_lacks(loadable: None, stripped: Path) -> None:
    with program_with(stripped) as pid:
        (finding,) = [one for one in examine(EbpfConfig()) if str(stripped) in one.text]
    assert finding.ok is None
    assert (
        "lacks THPEngine_run_backward (its symbol table was stripped): backward passes are not reported" in finding.text
    )
    assert finding.text.endswith(f" {pid}")


def test_a_missing_mark_is_logged_once_and_reported_for_each_process(
    loadable: None, stripped: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        Watch() as watch,
        program_with(stripped) as first,
        program_with(stripped) as second,
    ):
        readings = []
        for _ in range(2):
            watch.attach()
            readings.append(points(metrics_of(watch.read())["zernel.ebpf.missing_marks"]))
            watch.taken()
    for reading in readings:
        found = {(one["process_pid"], one["zernel_mark"]) for one in map(attributes_of, reading)}
        assert found == {(first, "backward"), (second, "backward")}
    lines = [record.getMessage() for record in caplog.records if "lacks" in record.getMessage()]
    assert len(lines) == 1
    assert lines[0].startswith(f"{stripped} lacks THPEngine_run_backward")
