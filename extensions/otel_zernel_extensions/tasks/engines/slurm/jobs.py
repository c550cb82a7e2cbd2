"""The list of all jobs of Slurm, which one request fetches for all tasks."""

from collections.abc import Mapping
from typing import Any

from otel_zernel.clock import Clock
from otel_zernel.errors import NoAnswer
from otel_zernel.text import printable
from otel_zernel_extensions.tasks.engines.slurm.observing import number_of
from otel_zernel_libraries.clients.json_client import JsonAnswer, JsonClient

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
        named = (one for one in jobs if str(one.get("name")).startswith(self._prefix))
        self._jobs = {number_of(one): one for one in named}
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
    found = answer.body.get("errors")
    texts = [str(one.get("description") or one.get("error")) for one in found or () if isinstance(one, Mapping)]
    return printable("; ".join(texts) or answer.text or "no message")


def error_numbers(answer: JsonAnswer) -> frozenset[int]:
    """The numbers of an answer's errors, as in slurm/slurm_errno.h. Before v0.0.39 they are called `error_code`."""
    found = [one for one in answer.body.get("errors") or () if isinstance(one, Mapping)]
    return frozenset(int(one.get("error_number") or one.get("error_code") or 0) for one in found)


def unavailable(answer: JsonAnswer, action: str) -> NoAnswer:
    """The error for an answer that is no success, with advice if access is missing."""
    advice = {
        401: "; check the token and its user",
        404: "; set api_version to a version that this slurmrestd has",
    }.get(answer.status, "")
    return NoAnswer(f"Slurm refused to {action}: {answer.status} {errors(answer)}{advice}")
