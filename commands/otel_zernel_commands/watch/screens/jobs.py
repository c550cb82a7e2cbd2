"""The jobs of a state. Each rank belongs to one; a process that trains alone is a job, too."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from otel_zernel_commands.watch.reading import number, objects, rows, text
from otel_zernel_commands.watch.screens import amounts
from otel_zernel_commands.watch.screens.verdicts import rank_name, verdict_sentences
from otel_zernel_commands.watch.screens.watch_view import WatchView

State = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class JobFields:
    """A job as the screens read it."""

    id: str
    name: str
    who: str
    """`rank 3`, `pid 4711` or `8 ranks`."""
    state: State
    """The state with this job and its ranks only."""
    finding: str
    """The worst finding in a few words: `saves 25 %: data loading: runs Python`."""
    is_fault: bool

    @property
    def ranks(self) -> Mapping[str, Mapping[str, Any]]:
        """Its ranks by id."""
        return objects(self.state, "ranks")

    def values(self, *path: str) -> list[float]:
        """The known values of the ranks that run, in order."""
        running = (rank for rank in self.ranks.values() if "ended" not in rank)
        return sorted(value for rank in running if (value := number(rank, *path)) is not None)


def jobs_of(state: State) -> list[JobFields]:
    """The jobs, those with a fault first. The older feed describes all processes together: it has none."""
    if "totals" in state:
        return []
    ranks, jobs = objects(state, "ranks"), objects(state, "jobs")
    members = {id_: [one for one in rows(job, "ranks") if isinstance(one, str)] for id_, job in jobs.items()}
    known = {rank for of_job in members.values() for rank in of_job}
    members |= {id_: [id_] for id_ in ranks if id_ not in known}
    members = {id_: those for id_, of_job in members.items() if (those := [one for one in of_job if one in ranks])}
    found = [_job(state, id_, those, has_all_gpus=len(members) == 1) for id_, those in members.items()]
    return sorted(found, key=lambda job: (not job.is_fault, job.name, job.id))


def shown_jobs(jobs: list[JobFields], view: WatchView) -> list[JobFields]:
    """The jobs that match the filter: each word is in a name."""
    words = view.filter.casefold().split()
    return [job for job in jobs if all(word in _words_of(job) for word in words)]


def _job(state: State, id_: str, members: list[str], *, has_all_gpus: bool) -> JobFields:
    ranks, jobs = objects(state, "ranks"), objects(state, "jobs")
    own = {
        **state,
        "ranks": {one: ranks[one] for one in members},
        "jobs": {id_: jobs[id_]} if id_ in jobs else {},
        "shares": rows(state, "shares", id_),
        "gpus": _gpus_of(state, members) or (objects(state, "gpus") if has_all_gpus else {}),
    }
    first = ranks[members[0]]
    sentence, is_fault = next(iter(verdict_sentences(own)), ("", False))
    cause, share = text(jobs.get(id_, {}), "answer", "cause"), number(jobs.get(id_, {}), "answer", "share")
    finding = f"saves {amounts.percent(share)}: {cause}" if cause and share else sentence
    name = text(jobs.get(id_, {}), "name") or text(first, "program") or text(first, "executable") or id_
    who = rank_name(first, id_) if len(members) == 1 else f"{len(members)} ranks"
    return JobFields(id_, name, who, own, finding, is_fault)


def _words_of(job: JobFields) -> str:
    texts = [job.id, job.name, job.who, job.finding]
    for rank in job.ranks.values():
        texts += [text(rank, "host"), text(rank, "executable"), text(rank, "phase"), text(rank, "verdict", "name")]
        texts.append(f"pid{number(rank, 'pid') or 0:.0f}")
    return " ".join(texts).casefold()


def _gpus_of(state: State, members: list[str]) -> dict[str, Mapping[str, Any]]:
    """The GPUs on which these ranks have memory."""
    ranks = objects(state, "ranks")
    used = {text(ranks[one], "gpu") for one in members}
    return {id_: gpu for id_, gpu in objects(state, "gpus").items() if id_ in used}
