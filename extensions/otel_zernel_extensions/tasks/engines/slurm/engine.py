"""The engine of Slurm: a task is a batch job, by the REST API."""

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping
from types import TracebackType
from typing import Final, Self

from otel_zernel.clock import Clock
from otel_zernel.component import Context
from otel_zernel.errors import NoAnswer
from otel_zernel_extensions.tasks.engines.engine import ENDED, Engine, Observed, TaskRejected, TaskSpec
from otel_zernel_extensions.tasks.engines.slurm import access
from otel_zernel_extensions.tasks.engines.slurm.config import SlurmConfig
from otel_zernel_extensions.tasks.engines.slurm.jobs import Job, JobList, error_numbers, errors, unavailable
from otel_zernel_extensions.tasks.engines.slurm.observing import number_of, observed
from otel_zernel_extensions.tasks.engines.slurm.output import Files
from otel_zernel_extensions.tasks.engines.slurm.submission import job_name, submission
from otel_zernel_libraries.clients.json_client import JsonClient

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

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
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
        found = {handle: await self._state(handle) for handle in handles}
        return {handle: state for handle, state in found.items() if state}

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
        found = {id_: known[name] for id_, name in names.items() if name in known}
        forgotten = await self._taken([id_ for id_ in ids if id_ not in found])
        return {id_: _handle(number, id_) for number, id_ in ({v: k for k, v in found.items()} | forgotten).items()}

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
