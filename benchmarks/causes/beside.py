"""The first answers of `why` and of its peers TraceML and py-spy on the same slow jobs.

`python -m benchmarks.causes.beside [NAME ...]` prints them as a table. `why` and py-spy watch a job that runs.
TraceML runs it from its begin to its end, with two changes of its program. The peers are installed into a folder of
their own, build/peers. No row says who is right: what is planted stands beside the answers.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import psutil

from benchmarks import BenchmarkRow
from benchmarks.causes import PYTHON, needs
from benchmarks.causes.real import HEALTHY, OF_MACHINE, REAL
from benchmarks.training.runs import ROOT, launcher
from otel_zernel import __version__

JOBS: Final = (
    "collate in the main process",
    "sleep in the forward pass",
    "metric after the step",
    "log sent after the step",
    "garbage collection",
    "another Python thread",
    "sleep on rank 1",
    "small collectives",
    "nothing",
)
TRACEML, PY_SPY = "0.5.0", "0.4.3"
PEERS: Final = (f"traceml-ai=={TRACEML}", f"py-spy=={PY_SPY}")
FOLDER: Final = ROOT / "build/peers"
SECONDS: Final = 15
"""For which `why` and py-spy watch."""
STEPS: Final = 600
"""Which TraceML sees."""
ENDLESS: Final = 10_000_000
PROGRAM: Final = "benchmarks/training/endless.py"
PATIENCE: Final = 120.0
"""Seconds for a program to train."""
LINES: Final = 3
"""Of py-spy."""
LONGEST: Final = 300
"""Seconds of a tool."""


def run() -> Iterator[BenchmarkRow]:
    return rows(JOBS)


def rows(names: Iterable[str]) -> Iterator[BenchmarkRow]:
    """The answers, a row for each job and tool."""
    if missing := _missing():
        yield BenchmarkRow("causes: beside peers", missing)
        return
    for name in names:
        for tool, ask in TOOLS.items():
            yield BenchmarkRow(f"causes, {name}: {tool}", ask(name))


def _missing() -> str:
    """What is missing, as a sentence; empty if there is all. It installs the peers."""
    if missing := needs():
        return missing
    if all((FOLDER / of_peer).exists() for of_peer in ("bin/py-spy", "traceml_ai")):
        return ""
    install = [str(PYTHON), "-m", "pip", "install", "--quiet", "--target", str(FOLDER), *PEERS]
    failed = subprocess.run(install, check=False, capture_output=True).returncode
    return f"pip could not install {' and '.join(PEERS)}" if failed else ""


@contextmanager
def training(program: str, *words: str, ranks: int = 1) -> Iterator[int]:
    """Trains until the end of the block, which begins with the first output of the program of this path. The value is
    the pid of the program, or of its launcher. Raises RuntimeError if it does not train."""
    with tempfile.TemporaryFile() as output:
        job = subprocess.Popen([PYTHON, *launcher(ranks), program, *words], cwd=ROOT, env=environment(), stdout=output)
        try:
            until = time.monotonic() + PATIENCE
            while not os.fstat(output.fileno()).st_size:
                if job.poll() is not None or time.monotonic() > until:
                    raise RuntimeError(f"{program} {' '.join(words)} does not train")
                time.sleep(0.1)
            yield job.pid
        finally:
            _end(job)


def _end(program: subprocess.Popen[Any]) -> None:
    """Kills a program with all that it has started."""
    with suppress(psutil.NoSuchProcess):
        for process in psutil.Process(program.pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                process.kill()
    program.kill()
    program.wait()


def environment(*folders: Path) -> dict[str, str]:
    """That of a program which may import packages of these folders, too."""
    of_python = {"PYTHONPATH": os.pathsep.join(map(str, (ROOT, *folders))), "PYTHONUNBUFFERED": "1"}
    return {**os.environ, **of_python, "OMP_NUM_THREADS": "1"}


def _planted(name: str) -> AbstractContextManager[int]:
    return training(PROGRAM, name, str(ENDLESS), ranks=_ranks(name))


def _ranks(name: str) -> int:
    return REAL[name].ranks if name in REAL else HEALTHY[name]


def said_by(command: Iterable[object], *folders: Path) -> str:
    """The output of a tool, which may import packages of these folders. Raises RuntimeError if it fails, and
    TimeoutExpired."""
    words = list(map(str, command))
    pipe = subprocess.PIPE
    tool = subprocess.Popen(words, cwd=ROOT, env=environment(*folders), stdout=pipe, stderr=pipe, text=True)
    try:
        output, errors = tool.communicate(timeout=LONGEST)
    finally:
        _end(tool)
    if tool.returncode:
        raise RuntimeError(f"{' '.join(words)} failed: {errors[-1_000:]}")
    return output


def said_by_why(pid: int) -> Mapping[str, Any]:
    """What `why` says of the job of this process, as JSON."""
    words = [sys.executable, "-m", "otel_zernel", "why", pid, "--for", f"{SECONDS}s", "--json"]
    [job] = json.loads(said_by(words))["jobs"]
    answer: Mapping[str, Any] = job
    return answer


def _why(name: str) -> str:
    """The first sentence, and the first cause that is one of the job: its place, its line and its first advice."""
    with _planted(name) as pid:
        job = said_by_why(pid)
    own = next((cause for cause in job["causes"] if cause["cause"] not in OF_MACHINE), None)
    if own is None:
        return str(job["why"])
    place = "/".join(str(own[key]) for key in ("cause", "position", "activity") if own[key])
    lines = [f"`{line}`" for line in own["code"][:1]]
    text = f"{place} {own['share']:.0%}, {', '.join([*lines, *own['advice'][:1]])}"
    return f"{job['why']} {'First' if own is job['causes'][0] else 'Then'}: {text}"


def _traceml(name: str) -> str:
    """The verdict of its summary, why, and what to do."""
    with tempfile.TemporaryDirectory() as folder:
        options = ["--logs-dir", folder, "--run-name", "job", "--nproc-per-node", _ranks(name)]
        program = [ROOT / PROGRAM, *options, "--args", name, STEPS, "traceml"]
        said_by([PYTHON, "-m", "traceml_ai.launcher.cli", "run", *program], FOLDER)
        summary = json.loads((Path(folder) / "job/final_summary.json").read_text())
    verdict = summary["primary_diagnosis"]
    return f'{verdict["status"]}: {verdict["summary"]} "{verdict["action"]}"'


def _py_spy(name: str) -> str:
    """The lines with the most samples, as `py-spy top` orders them, of all ranks."""
    with tempfile.TemporaryDirectory() as folder, _planted(name) as pid:
        stacks = Path(folder) / "stacks"
        options = ["--duration", SECONDS, "--format", "raw", "--output", stacks, "--subprocesses"]
        said_by([FOLDER / "bin/py-spy", "record", "--pid", pid, *options])
        lines: Counter[str] = Counter()
        for stack in stacks.read_text().splitlines():
            frames, count = stack.rsplit(" ", 1)
            lines[frames.rsplit(";", 1)[-1]] += int(count)
    total = lines.total()
    return "; ".join(f"`{line}` {count / total:.0%}" for line, count in lines.most_common(LINES))


TOOLS: Final[Mapping[str, Callable[[str], str]]] = {
    f"otel-zernel {__version__}": _why,
    f"TraceML {TRACEML}": _traceml,
    f"py-spy {PY_SPY}": _py_spy,
}


def main(names: Iterable[str]) -> None:
    """Prints the table."""
    if missing := _missing():
        sys.exit(missing)
    print(f"Run on {datetime.now(UTC):%Y-%m-%d}.\n")
    print(f"| planted | {' | '.join(TOOLS)} |\n|{'---|' * (len(TOOLS) + 1)}")
    for name in names:
        print(f"| {name} | {' | '.join(ask(name) for ask in TOOLS.values())} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:] or JOBS)
