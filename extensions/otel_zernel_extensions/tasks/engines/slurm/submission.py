"""The batch job that runs a task: its script, and its description for the versions of slurmrestd."""

import math
import shlex
from typing import Final

from otel_zernel_extensions.tasks.engines.engine import TaskSpec, task_environment
from otel_zernel_extensions.tasks.engines.slurm.config import SlurmConfig
from otel_zernel_libraries.clients.json_client import Json

_PATH: Final = "/usr/local/bin:/usr/bin:/bin"
"""slurmrestd gives a job no environment."""
_SCRIPT: Final = """\
#!/bin/sh
# Made by otel-zernel for the task {id}. Slurm has no idempotent submission: the first job takes the task.
taken={taken} result={result}
if ! (set -C; echo "$SLURM_JOB_ID" >"$taken") 2>/dev/null && [ "$(cat "$taken")" != "$SLURM_JOB_ID" ]; then
    echo "otel-zernel: cannot take the task by $taken; is it writable, and does another job have the task?" >&2
    exit 125
fi
(exec {command})
code=$?
# Slurm forgets ended jobs after MinJobAge, 5 min by default.
echo "$code" >"$result.new" && mv "$result.new" "$result"
exit $code
"""


def job_name(instance: str, task_id: str) -> str:
    """The name by which the collector finds the job again."""
    return f"zernel-{instance}-{task_id}"


def script(task: TaskSpec, directory: str) -> str:
    """The batch script. The command is quoted, and its first word follows `exec`: no shell interprets it."""
    path = f"{directory}/{task.id}"
    taken, result = shlex.quote(f"{path}.job"), shlex.quote(f"{path}.exit")
    return _SCRIPT.format(id=task.id, taken=taken, result=result, command=shlex.join(task.command))


def submission(task: TaskSpec, config: SlurmConfig) -> Json:
    """The body of `job/submit`."""
    version = int(config.api_version.rpartition(".")[2])
    environment = {"PATH": _PATH, **task_environment(task)}
    chosen = {"partition": config.partition, "account": config.account, "qos": config.qos}
    description: Json = {
        "tasks": 1,
        **config.job,
        **{key: value for key, value in chosen.items() if value},
        **_limits(task, version),
        "name": job_name(config.instance, task.id),
        "comment": task.name or task.id,
        "current_working_directory": task.working_dir or config.output_directory,
        "standard_output": f"{config.output_directory}/{task.id}.log",
        "environment": environment if version < 39 else [f"{name}={value}" for name, value in environment.items()],
        # A second job of a repeated submission waits for the first one, and then finds the task taken.
        "dependency": "singleton",
        "requeue": False,
    }
    if version < 40:
        return {"script": script(task, config.output_directory), "job": description}
    return {"job": {**description, "script": script(task, config.output_directory)}}


def _limits(task: TaskSpec, version: int) -> Json:
    limits: Json = {}
    if task.limits.cpu is not None:
        limits["cpus_per_task"] = max(1, math.ceil(task.limits.cpu))
    if task.limits.memory is not None:
        limits["memory_per_node"] = max(1, math.ceil(task.limits.memory / (1 << 20)))
    if task.limits.time is not None:
        limits["time_limit"] = max(1, math.ceil(task.limits.time / 60))
    if task.limits.gpus:
        limits |= _gpus(task.limits.gpus, version)
    return limits


def _gpus(count: int, version: int) -> Json:
    if version < 39:
        return {"gres": f"gpu:{count}"}
    # Slurm 23.11 writes types of resources with a slash.
    return {"tres_per_node": f"gres{'/' if version >= 40 else ':'}gpu:{count}"}
