"""Finds the run of a job, and has the summary written into it.

The job's own interpreter writes, as the job's user and with the job's environment. So the package and its version, the
key and the proxy are the job's, and `why` as root writes nowhere where a user's variables say.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Self

import psutil

from otel_zernel.text import printable, without_secrets
from otel_zernel_commands.why.findings import JobFindings
from otel_zernel_commands.why.tracking.summary import RunSummary, summary_of

RUNS: Final[Mapping[str, tuple[str, str]]] = {
    "WANDB_RUN_ID": ("wandb", "Weights & Biases"),
    "MLFLOW_RUN_ID": ("mlflow", "MLflow"),
    "TENSORBOARD_LOGGING_DIR": ("tensorboard", "TensorBoard"),
    "AIP_TENSORBOARD_LOG_DIR": ("tensorboard", "TensorBoard"),
}
"""Each variable that names a run: the module that writes into it, and the name of the product."""
_LONGEST: Final = 60.0
"""Seconds for one run. A server may not answer."""
_WRITING: Final = Path(__file__).with_name("writing.py")


@dataclass(frozen=True, slots=True)
class _Origin:
    """Where a job came from."""

    variables: Mapping[str, str]
    interpreter: str
    folder: str | None = None
    user: int | None = None
    group: int | None = None

    @classmethod
    def of_process(cls, pid: int) -> Self:
        """Raises psutil.Error or OSError."""
        process = psutil.Process(pid)
        if Path(f"/proc/{pid}/ns/mnt").readlink() != Path("/proc/self/ns/mnt").readlink():
            raise OSError(f"process {pid} runs in a container: run the command there")
        variables, folder = process.environ(), process.cwd()
        is_own = process.uids().effective == os.geteuid()
        return cls(
            variables,
            _interpreter(variables, process.cmdline()[:1], folder) or process.exe(),
            folder,
            None if is_own else process.uids().effective,
            None if is_own else process.gids().effective,
        )

    @classmethod
    def of_program(cls, command: Sequence[str]) -> Self:
        """A program that this process has started."""
        return cls(os.environ, _interpreter(os.environ, command, ".") or sys.executable)


def _interpreter(variables: Mapping[str, str], command: Sequence[str], folder: str) -> str | None:
    """That of the command, else that of its environment: a job may have changed its command line."""
    environments = [variables.get(name) for name in ("VIRTUAL_ENV", "CONDA_PREFIX")]
    names = [*command[:1], *(f"{path}/bin/python" for path in environments if path)]
    for name in names:
        place = os.path.join(folder, name) if "/" in name else name  # noqa: PTH118  # None is no path
        if Path(name).name.startswith("python") and (path := shutil.which(place, path=variables.get("PATH"))):
            return path
    return None


def sent(job: JobFindings, program: Sequence[str] | None = None) -> Iterator[str]:
    """Writes the summary of the job. Yields a sentence for each run. `program` is the command that was started."""
    pid = job.ranks[0].pid if job.ranks else 0
    try:
        origin = _Origin.of_program(program) if program else _Origin.of_process(pid)
    except (psutil.Error, OSError) as error:
        yield f"No run of {printable(job.title)} is written: {error}"
        return
    given = {product: (module, run) for name, (module, product) in RUNS.items() if (run := origin.variables.get(name))}
    if not given:
        yield f"No run of {printable(job.title)} is written: its environment has none of {', '.join(RUNS)}"
    for product, (module, run) in given.items():
        problem = _written(module, run, summary_of(job), origin)
        where = f"the run {printable(run)} of {product}"
        yield f"Cannot write into {where}: {problem}" if problem else f"Wrote the summary into {where}"


def _written(module: str, run: str, summary: RunSummary, origin: _Origin) -> str:
    """Writes in a process of the job's user. Returns a sentence if that fails."""
    try:
        done = subprocess.run(  # noqa: S603  # the job's interpreter, as the job's user
            [origin.interpreter, "-c", _WRITING.read_text("utf-8"), module, run],
            input=json.dumps(asdict(summary)),
            capture_output=True,
            text=True,
            timeout=_LONGEST,
            check=False,
            env=origin.variables,
            cwd=origin.folder,
            user=origin.user,
            group=origin.group,
            extra_groups=None if origin.user is None else [],
        )
    except subprocess.TimeoutExpired:
        return f"no answer within {_LONGEST:g} s"
    except (OSError, subprocess.SubprocessError) as error:
        return str(error)
    lines = done.stderr.strip().splitlines()
    reason = lines[-1] if lines else f"the process ended with status {done.returncode}"
    return without_secrets(printable(reason)) if done.returncode else ""
