"""Libraries are found in the layouts of package managers: conda environments, and packages that pip replaces."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.receivers.ebpf.standin import SOURCES, Program, Standin
from tests.receivers.ebpf.watching import Watch, calls, numbers

LAUNCH = "zernel.cuda.launch.latency"
PACKAGES = "lib/python3.11/site-packages"
TORCH = f"{PACKAGES}/torch/lib/libtorch_cpu.so"


def launches(watch: Watch, *programs: Program) -> list[int]:
    """The calls of the runtime by each program."""
    batch = watch.read()
    return [calls(batch, LAUNCH, process_pid=program.pid, zernel_cuda_api="runtime") for program in programs]


def in_conda_s_layout(standin: Standin, prefix: Path) -> Path:
    """An environment whose PyTorch finds the runtime four folders up, by a link without the full version."""
    (prefix / TORCH).parent.mkdir(parents=True)
    shutil.copy(standin.cuda, prefix / "lib")
    shutil.copy(standin.cudart, prefix / "lib/libcudart.so.12.4.127")
    (prefix / "lib/libcudart.so.12").symlink_to("libcudart.so.12.4.127")
    compiling = ["cc", "-shared", "-fPIC", "-O2", "-w", str(SOURCES / "torch.c"), "-o", str(prefix / TORCH)]
    linking = ["-Wl,--no-as-needed", f"-L{prefix}/lib", "-l:libcudart.so.12", "-Wl,-rpath,$ORIGIN/../../../.."]
    subprocess.run([*compiling, *linking], check=True)
    return prefix


def test_conda_environments_with_the_same_files_are_counted_once_each(
    watch: Watch, standin: Standin, tmp_path: Path
) -> None:
    first = in_conda_s_layout(standin, tmp_path / "envs/first")
    second = Path(shutil.copytree(first, tmp_path / "envs/second", symlinks=True, copy_function=os.link))
    with standin.start() as one, standin.start() as other:
        for program, prefix in ((one, first), (other, second)):
            program.do(f"load {prefix / TORCH}")
            assert f"{prefix}/lib/libcudart.so.12.4.127\n" in Path(f"/proc/{program.pid}/maps").read_text()
            watch.attach()
        one.do("cudaLaunchKernel times=10")
        one.do("record_function_enter_new times=3")
        other.do("cudaLaunchKernel times=20")
        hits = [sum(numbers(watch.read(), "zernel.probe.hits", process_pid=program.pid)) for program in (one, other)]
        assert launches(watch, one, other) == [10, 20]
    assert hits == [10 + 3, 20], "the driver is loaded by the first launch, after the last scan"


def job(standin: Standin, folder: Path) -> Program:
    """A program that has loaded the libraries of a folder."""
    program = standin.start()
    program.do(f"load {folder}/libcuda.so.1")  # the runtime finds it by its name
    program.do(f"load {folder}/libcudart.so.12")
    program.do(f"load {folder}/libtorch_cpu.so")
    return program


def test_files_that_pip_replaces_during_a_job_are_not_counted_twice(
    watch: Watch, standin: Standin, tmp_path: Path
) -> None:
    """It moves a package, installs the new one, and then deletes the moved one."""
    folder = standin.copy_to(tmp_path / "torch").folder
    with job(standin, folder) as program:
        watch.attach()
        moved = folder.rename(tmp_path / "~orch")
        watch.attach()
        standin.copy_to(folder)
        watch.attach()
        program.do("cudaLaunchKernel times=10")
        shutil.rmtree(moved)
        watch.attach()
        program.do("cudaLaunchKernel times=5")
        with job(standin, folder) as new:
            watch.attach()
            new.do("cudaLaunchKernel times=20")
            assert launches(watch, program, new) == [15, 20]


def wheel(standin: Standin, folder: Path) -> Path:
    """A wheel with the stand-ins."""
    path, info = folder / "torch-1.0-py3-none-any.whl", "torch-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as file:
        for library in (standin.cuda, standin.cudart, standin.folder / "libtorch_cpu.so"):
            file.write(library, f"torch/lib/{library.name}")
        file.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: torch\nVersion: 1.0\n")
        file.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: py3-none-any\n")
        file.writestr(f"{info}/RECORD", "")
    return path


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """A virtual environment without packages."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "env"], check=True)
    return tmp_path / "env"


def install(wheel: Path, environment: Path) -> Path:
    """Installs the wheel with pip, replacing an installed one. Returns its folder of libraries."""
    pip = [sys.executable, "-m", "pip", "--python", str(environment / "bin/python"), "--disable-pip-version-check"]
    subprocess.run([*pip, "install", "--quiet", "--no-index", "--force-reinstall", str(wheel)], check=True)
    (folder,) = environment.glob("lib/python*/site-packages/torch/lib")
    return folder


def test_jobs_with_a_wheel_and_with_its_replacement_are_counted_once_each(
    watch: Watch, standin: Standin, environment: Path, tmp_path: Path
) -> None:
    package = wheel(standin, tmp_path)
    folder = install(package, environment)
    with job(standin, folder) as old, job(standin, folder) as unscanned:
        watch.attach()
        assert install(package, environment) == folder
        assert "/libtorch_cpu.so (deleted)\n" in Path(f"/proc/{unscanned.pid}/maps").read_text()
        with job(standin, folder) as new:
            for _ in range(2):
                watch.attach()
            old.do("cudaLaunchKernel times=10")
            unscanned.do("cudaLaunchKernel times=20")
            new.do("cudaLaunchKernel times=30")
            assert launches(watch, old, unscanned, new) == [10, 20, 30]
