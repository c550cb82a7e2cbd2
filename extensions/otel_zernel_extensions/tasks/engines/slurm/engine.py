"""The engine of Slurm: a task is a batch job, by the REST API.

One request fetches the list of all jobs for all tasks. Output and result of a task are files on the cluster's shared
disk, which this machine may lack.
"""

import asyncio
import math
import os
import shlex
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Final, Self

from otel_zernel.clock import Clock
from otel_zernel.component import Context
from otel_zernel.errors import NoAnswer
from otel_zernel.text import printable
from otel_zernel_extensions.tasks.engines.disk import from_disk, start_of_last
from otel_zernel_extensions.tasks.engines.engine import (
    ENDED,
    Engine,
    LogsGone,
    Observed,
    TaskRejected,
    TaskSpec,
    task_environment,
)
from otel_zernel_extensions.tasks.engines.slurm import access
from otel_zernel_extensions.tasks.engines.slurm.config import SlurmConfig
from otel_zernel_extensions.tasks.engines.slurm.observing import number_of, observed
from otel_zernel_libraries.clients.json_client import Json, JsonAnswer, JsonClient

Job = Mapping[str, Any]


class JobList:
    """The jobs whose names begin with a prefix. The newest list serves for `interval` s."""

    def __init__(self, client: JsonClient, path: str, prefix: str, interval: float, clock: Clock) -> None:
        self._client = client
        self._path = path
        self._prefix = prefix
        self._interval = interval
        self._clock = clock
        self._jobs: dict[int, Job] = {}
        self._absent: set[tuple[int, str]] = set()
        """Jobs that were not in a list that was read for them: the next lists serve for them, too."""
        self._read_at: float | None = None

    async def get(self, number: int, name: str) -> Job | None:
        """A job, by its id and its name: Slurm uses ids again. None if a list without it was just read."""
        if self._is_old():
            await self.read()
        if not self._has(number, name) and (number, name) not in self._absent:
            # It may have been submitted after the list was read.
            await self.read()
            self._absent.add((number, name))
        return self._jobs[number] if self._has(number, name) else None

    async def named(self, name: str) -> list[int]:
        """The ids of the jobs with this name, by a new list. The first one has the lowest id."""
        await self.read()
        return sorted(number for number, job in self._jobs.items() if job.get("name") == name)

    async def all(self) -> dict[str, int]:
        """The lowest id by name, by a new list."""
        await self.read()
        return {str(self._jobs[number]["name"]): number for number in sorted(self._jobs, reverse=True)}

    async def read(self) -> None:
        """Reads a new list. Raises `NoAnswer`: an incomplete list would lose tasks."""
        answer = await self._client.call("GET", self._path)
        jobs = answer.body.get("jobs")
        if not answer.ok or answer.body.get("errors") or not isinstance(jobs, list):
            raise unavailable(answer, "list its jobs")
        named = (job for job in jobs if str(job.get("name")).startswith(self._prefix))
        self._jobs = {number_of(job): job for job in named}
        self._read_at = self._clock.monotonic()

    def forget(self, number: int, name: str) -> None:
        """Nobody asks for this job any more."""
        self._absent.discard((number, name))

    def outdated(self) -> None:
        """The next look reads a new list."""
        self._read_at = None

    def _is_old(self) -> bool:
        return self._read_at is None or self._clock.monotonic() >= self._read_at + self._interval

    def _has(self, number: int, name: str) -> bool:
        return number in self._jobs and self._jobs[number].get("name") == name


def errors(answer: JsonAnswer) -> str:
    """The sentences of an answer's errors."""
    listed = answer.body.get("errors")
    texts = [
        str(problem.get("description") or problem.get("error"))
        for problem in listed or ()
        if isinstance(problem, Mapping)
    ]
    return printable("; ".join(texts) or answer.text or "no message")


def error_numbers(answer: JsonAnswer) -> frozenset[int]:
    """The numbers of an answer's errors, as in slurm/slurm_errno.h. Before v0.0.39 they are called `error_code`."""
    errors = [error for error in answer.body.get("errors") or () if isinstance(error, Mapping)]
    return frozenset(int(error.get("error_number") or error.get("error_code") or 0) for error in errors)


def unavailable(answer: JsonAnswer, action: str) -> NoAnswer:
    """The error for an answer that is no success, with advice if access is missing."""
    advice = {
        401: "; check the token and its user",
        404: "; set api_version to a version that this slurmrestd has",
    }.get(answer.status, "")
    return NoAnswer(f"Slurm refused to {action}: {answer.status} {errors(answer)}{advice}")


_PIECE: Final = 64 << 10
_WAIT: Final = 0.5
"""Seconds between two looks at the end of a file that grows."""


class Files:
    """The files of one task."""

    def __init__(self, directory: str, task_id: str) -> None:
        self.output = Path(directory, f"{task_id}.log")
        self._result = Path(directory, f"{task_id}.exit")
        self._taken = Path(directory, f"{task_id}.job")

    def result(self) -> int | None:
        """The exit code that the script has written. Blocks."""
        code = _number_in(self._result)
        return code if code is None or code < 256 else None

    def taken_by(self) -> int | None:
        """The id of the job that has taken the task. Blocks."""
        return _number_in(self._taken)

    def delete(self) -> None:
        """Deletes all. Blocks. A file that is missing, or a disk that this machine does not have, is no error."""
        for path in (self.output, self._result, self._taken):
            try:
                path.unlink()
            except OSError:
                continue

    async def read(
        self, ended: Callable[[], Awaitable[bool]], follow: bool, tail: int | None, clock: Clock
    ) -> AsyncIterator[bytes]:
        """The output, in pieces. With `follow`, until `ended()`, and then the rest. Raises `LogsGone`
        before the first piece, or `NoAnswer`."""
        place = f"the output is in {self.output} on the disk of the cluster"
        while not (opened := await from_disk(lambda: _opened(self.output, tail))):
            if not follow or await ended():
                raise LogsGone(f"{place}; this machine has no such file, or the task has not started")
            await clock.sleep(_WAIT)
        descriptor, position = opened
        try:
            while True:
                # Asked before the last look, so that nothing that was written until the end is missed.
                last = not follow or await ended()
                while piece := await from_disk(lambda at=position: os.pread(descriptor, _PIECE, at)):  # type: ignore[misc]
                    position += len(piece)
                    yield piece
                if last:
                    return
                await clock.sleep(_WAIT)
        finally:
            os.close(descriptor)


def _number_in(path: Path) -> int | None:
    try:
        with path.open("rb") as file:
            text = file.read(16).strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None


def _opened(path: Path, tail: int | None) -> tuple[int, int] | None:
    """A descriptor, and the position from which to read. None if the file cannot be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return descriptor, 0 if tail is None else start_of_last(descriptor, tail)
    except OSError:
        os.close(descriptor)
        raise


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


_NOTHING_FOUND: Final = frozenset({2017, 2021, 9003})
"""ESLURM_INVALID_JOB_ID, ESLURM_ALREADY_DONE and ESLURM_REST_EMPTY_RESULT (slurm/slurm_errno.h)."""
_REST: Final = 30.0
"""Seconds without questions after a failure: slurmrestd may take all of `request_timeout` to notice one."""


class Accounting:
    """Knows jobs that slurmctld has forgotten. A cluster may have none: then slurmrestd has no such path."""

    def __init__(self, client: JsonClient, path: str, clock: Clock) -> None:
        self._client = client
        self._path = path
        self._clock = clock
        self._problem = ""
        self._asked_again_at = 0.0

    async def job(self, number: int, name: str) -> Job | None:
        """A job, by its id and its name. None if the database has no such job, or if there is no database.

        Raises `NoAnswer` if it does not answer: the job may be there.
        """
        if self._problem and self._clock.monotonic() < self._asked_again_at:
            raise NoAnswer(self._problem)
        try:
            jobs = await self._jobs(number)
        except NoAnswer as error:
            self._problem = str(error)
            self._asked_again_at = self._clock.monotonic() + _REST
            raise
        self._problem = ""
        return next((job for job in jobs if job.get("name") == name), None)

    async def _jobs(self, number: int) -> list[Job]:
        answer = await self._client.call("GET", f"{self._path}/job/{number}")
        numbers = error_numbers(answer) - {0}
        if answer.status in (204, 404) or (numbers and numbers <= _NOTHING_FOUND):
            return []
        jobs = answer.body.get("jobs")
        if not answer.ok or answer.body.get("errors") or not isinstance(jobs, list):
            raise unavailable(answer, "read its accounting")
        return [job for job in jobs if isinstance(job, Mapping)]


_CONTROLLER: Final = 20.0
"""Seconds in which slurmctld may still take a job that slurmrestd has sent: twice the default MessageTimeout."""
_CHECK: Final = "see sacctmgr show runawayjobs"
_NO_JOB: Final = frozenset({2017, 2021})
"""ESLURM_INVALID_JOB_ID and ESLURM_ALREADY_DONE."""
_PASSING: Final = frozenset({*range(1000, 2000), 2013, 2016, *range(5000, 5100)})
"""Errors of the connection to slurmctld, and of busy nodes: the same job may be taken later (slurm/slurm_errno.h)."""


class SlurmEngine(Engine):
    """Runs each task as a batch job on one node. A file on the shared disk lets only one job take a task."""

    def __init__(self, config: SlurmConfig, context: Context) -> None:
        self._config = config
        self._clock = context.clock
        setting = f"{context.path}::slurm"
        self._client = JsonClient(
            lambda: access.read(config, setting), "Slurm", setting, config.request_timeout, context
        )
        self._prefix = job_name(config.instance, "")
        self._path = f"/slurm/{config.api_version}"
        self._jobs = JobList(self._client, f"{self._path}/jobs", self._prefix, config.list_interval, self._clock)
        self._accounting = Accounting(self._client, f"/slurmdb/{config.api_version}", self._clock)
        self._ends: dict[str, Observed] = {}
        """Ends that were observed: Slurm forgets them after MinJobAge."""
        self._unsure: dict[str, float] = {}
        """Until when a submission without an answer may still arrive, by task id."""

    async def __aenter__(self) -> Self:
        await self._client.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.__aexit__()

    def check(self, task: TaskSpec) -> None:
        if any("\0" in argument for argument in task.command):
            raise TaskRejected("an argument of the command has a zero byte, which no program can receive")
        for name, value in task.env.items():
            if not name or "=" in name or "\0" in name + value:
                raise TaskRejected(f"{name!r} is not a name of an environment variable, or its value has a zero byte")

    async def submit(self, task: TaskSpec) -> str:
        name = job_name(self._config.instance, task.id)
        if known := await self._jobs.named(name) or await self._taken([task.id]):
            return _handle(next(iter(known)), task.id)
        self._unsure[task.id] = self._clock.monotonic() + self._config.request_timeout + _CONTROLLER
        answer = await self._client.call("POST", f"{self._path}/job/submit", body=submission(task, self._config))
        number = number_of(answer.body)
        if not answer.ok or error_numbers(answer) - {0} or not number:
            if 400 <= answer.status < 500 or error_numbers(answer) - _PASSING - {0}:
                del self._unsure[task.id]
            if answer.status in (401, 404) or not error_numbers(answer) - _PASSING - {0}:
                raise unavailable(answer, "take the job")
            raise TaskRejected(f"Slurm refuses the job: {errors(answer)}")
        del self._unsure[task.id]
        self._jobs.outdated()
        return _handle(number, task.id)

    async def cancel(self, handle: str) -> None:
        # A repeated submission may have made a second job, which must not take the task now.
        for number in await self._jobs.named(self._prefix + _task_id(handle)):
            answer = await self._client.call("DELETE", f"{self._path}/job/{number}")
            if not answer.ok and not error_numbers(answer) & _NO_JOB:
                raise unavailable(answer, f"cancel the job {number}")
        self._jobs.outdated()

    async def states(self, handles: Collection[str]) -> Mapping[str, Observed]:
        by_handle = {handle: await self._state(handle) for handle in handles}
        return {handle: state for handle, state in by_handle.items() if state}

    async def _state(self, handle: str) -> Observed | None:
        if end := self._ends.get(handle):
            return end
        number, task_id = _number(handle), _task_id(handle)
        job = await self._jobs.get(number, self._prefix + task_id)
        state = observed(job) if job else await self._forgotten(number, task_id)
        if state and state.status in ENDED:
            self._ends[handle] = state
        return state

    async def _forgotten(self, number: int, task_id: str) -> Observed | None:
        """The end of a job that slurmctld has forgotten: from accounting, or from the script's file.

        As long as accounting may still get the end, it is a starting task. None if nobody knows the job.
        """
        waits = ""
        try:
            if job := await self._accounting.job(number, self._prefix + task_id):
                if (state := observed(job)).status in ENDED:
                    return state
                waits = f"Slurm has forgotten the job, and its accounting has no end of it yet; {_CHECK}"
        except NoAnswer as error:
            waits = f"Slurm has forgotten the job, and its accounting does not answer: {error}"
        code = await asyncio.to_thread(Files(self._config.output_directory, task_id).result)
        if code is not None:
            return Observed("failed" if code else "succeeded", code)
        return Observed("starting", reason=waits) if waits else None

    def logs(self, handle: str, follow: bool, tail: int | None) -> AsyncIterator[bytes]:
        async def ended() -> bool:
            try:
                state = await self._state(handle)
            except NoAnswer:
                return False
            return state is None or state.status in ENDED

        return Files(self._config.output_directory, _task_id(handle)).read(ended, follow, tail, self._clock)

    async def recover(self, ids: Collection[str]) -> Mapping[str, str]:
        for id_ in ids:
            if self._unsure.get(id_, 0.0) > self._clock.monotonic():
                raise NoAnswer(f"the submission of the task {id_} to Slurm may still be in progress")
        known = await self._jobs.all()
        names = {id_: job_name(self._config.instance, id_) for id_ in ids}
        handles = {id_: known[name] for id_, name in names.items() if name in known}
        forgotten = await self._taken([id_ for id_ in ids if id_ not in handles])
        return {id_: _handle(number, id_) for number, id_ in ({v: k for k, v in handles.items()} | forgotten).items()}

    async def _taken(self, ids: list[str]) -> dict[int, str]:
        """Jobs that slurmctld has forgotten, by the files that they have left: task ids by job ids."""

        def read() -> dict[int, str]:
            taken = {id_: Files(self._config.output_directory, id_).taken_by() for id_ in ids}
            return {number: id_ for id_, number in taken.items() if number}

        return await asyncio.to_thread(read)

    async def forget(self, handle: str) -> None:
        self._ends.pop(handle, None)
        self._jobs.forget(_number(handle), self._prefix + _task_id(handle))
        self._jobs.outdated()
        await asyncio.to_thread(Files(self._config.output_directory, _task_id(handle)).delete)


def _handle(number: int, task_id: str) -> str:
    return f"{number}:{task_id}"


def _number(handle: str) -> int:
    number = handle.partition(":")[0]
    return int(number) if number.isdecimal() else 0


def _task_id(handle: str) -> str:
    return handle.partition(":")[2]
