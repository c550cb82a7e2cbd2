"""Stand-in libraries for CUDA and NCCL without a GPU, and a program that logs every call.

    standin = build(folder)                      # raises NoCompiler if cc is not installed
    with standin.start(loads=["libcudart.so.12"]) as program:
        program.do("cudaLaunchKernel times=100 work=20000")
        program.do("cudaDeviceSynchronize")
    program.calls("cudaLaunchKernel")            # structured array: start, end, size, pointer, pid, tid, ...

`program.c` describes the commands. The log has no calls that libraries make, but they follow from it:

- A runtime call makes one driver call of the same kind, unless it fails because of an invalid function or copy kind.
- libnccl, with its private copy of the runtime, makes one `cuLaunchKernelEx` for each collective outside a group, and
  one for the outermost `ncclGroupEnd` of a group that is not empty.
"""

import os
import platform
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt

Prologue = Literal["push", "endbr64", "stepped"]

SOURCES = Path(__file__).parent

RECORD = np.dtype(
    [
        ("start", "u8"),
        ("end", "u8"),
        ("size", "u8"),
        ("pointer", "u8"),
        ("pid", "u4"),
        ("tid", "u4"),
        ("result", "i4"),
        ("device", "i4"),
        ("name", "S32"),
    ]
)
"""`struct record` of program.c."""

_COMMON = "-std=gnu11 -O2 -g1 -fPIC -pthread -Wall -Werror -fno-optimize-sibling-calls -fno-ipa-icf -fno-shrink-wrap"
_PROLOGUES: dict[str, dict[Prologue, str]] = {
    "x86_64": {
        "push": "-fno-omit-frame-pointer -fcf-protection=none",
        "endbr64": "-fno-omit-frame-pointer -fcf-protection=full",
        "stepped": "-fsplit-stack -fcf-protection=none",  # every function begins with a comparison of the stack pointer
    },
    # All are single-stepped on arm64. The names have the meaning of x86-64: usual prologue, landing pad, the rest.
    "aarch64": {
        "push": "-fno-omit-frame-pointer -mbranch-protection=none",  # stp
        "endbr64": "-fno-omit-frame-pointer -mbranch-protection=bti",
        "stepped": "-fno-omit-frame-pointer -mbranch-protection=pac-ret+leaf",  # paciasp
    },
}

Calls = npt.NDArray[Any]
"""Calls as records of `RECORD`, in the order in which they began."""


class NoCompiler(Exception):
    """No C compiler is installed, which the stand-ins need."""


@dataclass(frozen=True)
class Standin:
    """The built files. All are in one folder, in which they find each other."""

    folder: Path

    @property
    def cudart(self) -> Path:
        return self.folder / "libcudart.so.12"

    @property
    def cuda(self) -> Path:
        return self.folder / "libcuda.so.1"

    @property
    def nccl(self) -> Path:
        return self.folder / "libnccl.so.2"

    @property
    def program(self) -> Path:
        return self.folder / "program"

    @property
    def static_program(self) -> Path:
        """The program with the runtime linked in. It exports the runtime's symbols and needs no `load`."""
        return self.folder / "static_program"

    @property
    def cupti(self) -> Path:
        """Passes on what the device does, if CUDA_INJECTION64_PATH names it."""
        return self.folder / "libparcagpucupti.so"

    @property
    def old_cupti(self) -> Path:
        """The same, with a USDT probe for each kernel."""
        return self.folder / "old" / "libparcagpucupti.so"

    def copy_to(self, folder: Path) -> "Standin":
        """Copies the built files into `folder`, without logs: copying a sparse log would fill the disk."""
        return Standin(Path(shutil.copytree(self.folder, folder, ignore=shutil.ignore_patterns("log-*"))))

    def start(
        self,
        program: Path | None = None,
        *,
        wrapper: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        capacity: int = 1 << 20,
        loads: Sequence[str] = (),
    ) -> "Program":
        """Starts the program (by a `wrapper` such as unshare), which loads libraries and then waits for commands.

        Its log has room for `capacity` calls. One more call ends the program, so that no log is silently incomplete.
        """
        log = self.folder / f"log-{os.urandom(6).hex()}"
        with log.open("wb") as file:
            file.truncate((capacity + 1) * RECORD.itemsize)
        process = subprocess.Popen(
            [*wrapper, str(program or self.program), str(log)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            env={**os.environ, **(environment or {})},
        )
        started = Program(process, log)
        for library in loads:
            started.do(f"load {library}")
        return started

    def run(self, script: str, **options: Any) -> "Program":
        """Runs all commands of `script`, separated by lines or `;`. The options are those of `start`."""
        with self.start(**options) as program:
            for line in filter(None, map(str.strip, script.replace(";", "\n").splitlines())):
                program.do(line)
        return program


@dataclass
class Program:
    """A running program. Leaving the context ends it. The log can be read at any time, even after the end."""

    process: subprocess.Popen[str]
    _log: Path
    _answers_due: int = field(default=0, init=False)

    @property
    def pid(self) -> int:
        """The pid of the started process. `log["pid"]` has that of the program, if a wrapper forks."""
        return self.process.pid

    def do(self, command: str) -> None:
        """Executes `command` and waits for its end."""
        self.send(command)
        self.wait()

    def send(self, command: str) -> None:
        """Sends `command` for execution after earlier ones, without waiting."""
        assert self.process.stdin
        self.process.stdin.write(command + "\n")
        self._answers_due += 1

    def wait(self) -> None:
        """Waits until all sent commands are executed. Raises RuntimeError if one failed."""
        assert self.process.stdout
        while self._answers_due:
            answer = self.process.stdout.readline().strip()
            if answer != "done":
                raise RuntimeError(answer or f"the program ended with status {self.process.wait()}")
            self._answers_due -= 1

    def kill(self) -> None:
        """Sends SIGKILL."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    @property
    def log(self) -> Calls:
        """All calls so far. A call that still runs, or that a signal interrupted for good, has `end` 0."""
        with self._log.open("rb") as file:
            count = int.from_bytes(file.read(8), "little")
            file.seek(RECORD.itemsize)
            return np.fromfile(file, RECORD, count)

    def calls(self, *names: str) -> Calls:
        """The calls of these functions."""
        log = self.log
        return log[np.isin(log["name"], [name.encode() for name in names])]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self.process.stdin
        assert self.process.stdout
        if kind:
            self.process.kill()
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


def build(folder: Path, prologue: Prologue = "push") -> Standin:
    """Builds everything into `folder`, with functions that begin with the given prologue. Takes two seconds.

    If the variable STANDINS names a folder with the results of `compile_all` for every prologue, they are copied.
    """
    if made := os.environ.get("STANDINS"):
        shutil.copytree(Path(made, prologue), folder, dirs_exist_ok=True)
        return Standin(folder)
    return compile_all(folder, prologue, platform.machine(), "cc")


def compile_all(folder: Path, prologue: Prologue, machine: str, command: str) -> Standin:
    """Compiles everything for a processor (`x86_64`, `aarch64`) with its compiler."""
    compiler = shutil.which(command)
    if not compiler:
        raise NoCompiler(f"{command} is not installed")
    folder.mkdir(parents=True, exist_ok=True)
    cc = [compiler, *_COMMON.split(), *_PROLOGUES[machine][prologue].split()]
    standin = Standin(folder)
    _library(cc, standin.cuda, ["driver.c"], "{ global: cu*; local: *; };")
    _library(cc, standin.cudart, ["runtime.c"], "libcudart.so.12 { global: cuda*; local: *; };")
    _library(cc, standin.nccl, ["nccl.c", "runtime.c"], "{ global: nccl*; pnccl*; local: *; };")
    for name, exported in (
        ("libtorch_cpu.so", "_Z*;"),
        ("libtorch_python.so", "apply; backward; during_backward; inference_mode;"),
    ):
        _library(cc, folder / name, ["torch.c"], f"{{ global: {exported} local: *; }};")
    _library(cc, folder / "libc10.so", ["c10.c"], "{ global: _Z*; local: *; };")
    standin.old_cupti.parent.mkdir(exist_ok=True)
    for path, defined in ((standin.cupti, ()), (standin.old_cupti, ("-DSINGLE",))):
        _link(cc, path, ["cupti.c"], "-shared", "-Wno-unused-function", *defined)
    _link(cc, standin.program, ["program.c"])
    _link(cc, standin.static_program, ["program.c", "runtime.c"], "-rdynamic")
    return standin


def _library(cc: list[str], path: Path, sources: list[str], exports: str) -> None:
    """Builds a shared library that exports the symbols of the version script `exports`."""
    script = path.with_suffix(".exports")
    script.write_text(exports)
    _link(cc, path, sources, "-shared", f"-Wl,-soname,{path.name}", f"-Wl,--version-script,{script}")


def _link(cc: list[str], path: Path, sources: list[str], *options: str) -> None:
    """Compiles and links `sources`. The result searches for libraries in its own folder."""
    files = [str(SOURCES / source) for source in sources]
    subprocess.run([*cc, *files, *options, "-Wl,-rpath,$ORIGIN", "-ldl", "-o", str(path)], check=True)
