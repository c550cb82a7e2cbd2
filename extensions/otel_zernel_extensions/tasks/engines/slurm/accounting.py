"""The database of ended jobs, which slurmrestd reads from slurmdbd."""

from collections.abc import Mapping
from typing import Final

from otel_zernel.clock import Clock
from otel_zernel.errors import NoAnswer
from otel_zernel_extensions.tasks.engines.slurm.jobs import Job, error_numbers, unavailable
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
