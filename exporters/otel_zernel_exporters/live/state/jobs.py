"""The state of a job, from the metrics that `phases` emits for jobs of several ranks. Other ranks are jobs of one."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from otel_zernel.otlp.points import AttributeValue
from otel_zernel_exporters.live.state.columns import HEAT_LENGTH, SHARES_LENGTH, ColumnHistory
from otel_zernel_exporters.live.state.ranks import LiveRank
from otel_zernel_exporters.live.state.tables import LONGEST_TEXT
from otel_zernel_libraries.training import PHASES, SeenValue, launcher_of, title_of

LAUNCHER: Final = "zernel.job.launcher"
ALONE: Final = ""
"""In a `JobKey`: the value is the id of the only rank."""
_UNNAMED: Final = "zernel.world_size"
"""Names a job that has no other name."""
_MOST_RANKS: Final = 1024
JobKey = tuple[str, str]
"""The attribute that names the job, and its value."""


@dataclass(slots=True)
class LiveJob:
    """The newest comparison of the ranks of a job."""

    key: JobKey
    touched: float = 0.0
    ended_at: float | None = None
    verdict: str = ""
    step_s: float | None = None
    transfer_s: float | None = None
    lateness: dict[int, float] = field(default_factory=dict)
    """By rank: the longest wait (s) of any rank for collectives minus its own, in a mean step."""
    critical: dict[int, dict[str, float]] = field(default_factory=dict)
    """By rank and phase: the time (s) of critical paths."""
    name: str = ""
    """For people."""
    ranks: dict[str, int] = field(default_factory=dict)
    """The numbers of its ranks by id."""
    heat: ColumnHistory = field(default_factory=lambda: ColumnHistory(HEAT_LENGTH))
    shares: ColumnHistory = field(default_factory=lambda: ColumnHistory(SHARES_LENGTH))

    @property
    def is_alone(self) -> bool:
        """Whether it is a rank that trains alone."""
        return self.key[0] == ALONE

    def rendered(self) -> dict[str, Any]:
        """The fields of the live state (docs/live.md)."""
        fields: dict[str, Any] = {
            "name": self.name or None,
            "ranks": sorted(self.ranks, key=lambda id_: (self.ranks[id_], id_)),
            "verdict": self._verdict(),
            "step_time": None if self.step_s is None else round(self.step_s, 6),
            "critical_path": {
                str(rank): {phase: round(spent, 6) for phase, spent in sorted(spent_in.items())}
                for rank, spent_in in sorted(self.critical.items())
            },
        }
        return {name: value for name, value in fields.items() if value not in (None, {})}

    def _verdict(self) -> dict[str, Any] | None:
        """With the ranks that it is about: a straggler is a rank that is late by more than half of the most."""
        if not self.verdict:
            return None
        most = max(self.lateness.values(), default=0.0)
        late = {rank for rank, lateness in self.lateness.items() if most and lateness > most / 2}
        about = sorted(id_ for id_, rank in self.ranks.items() if rank in late) if self.verdict == "straggler" else []
        evidence = {"lateness": round(most, 6), "transfer": round(self.transfer_s or 0.0, 6)}
        return {"name": self.verdict, "ranks": about, "evidence": evidence}


def job_key_of(resource: Mapping[str, AttributeValue]) -> JobKey | None:
    """The attribute that names a job in the resource of its metrics. None if it is no resource of a job.

    `phases` adds `service.name`; it is the name only if there is no other attribute.
    """
    if "process.pid" in resource:
        return None
    keys = [key for key in resource if key != "service.name"]
    named = [key for key in keys if key in (LAUNCHER, "zernel.job.id", _UNNAMED)] or keys or ["service.name"]
    key = named[0]
    return (key, str(resource[key])) if key in resource else None


def assign(
    jobs: Mapping[JobKey, LiveJob], ranks: Iterable[LiveRank], alone: Callable[[LiveRank], LiveJob | None]
) -> set[str]:
    """Finds the job of each rank. `alone` makes the job of a rank that trains alone; None while it waits for the
    data of its job.

    Returns the ids of the ranks whose job or lateness has changed.
    """
    names = {name for name, _ in jobs}
    for job in jobs.values():
        job.ranks = {}
    changed = set()
    for rank in ranks:
        found = _job_of(rank, jobs, names) or jobs.get((ALONE, rank.id)) or alone(rank)
        if found:
            found.ranks[rank.id] = rank.rank or 0
        id_ = found.key[1] if found else ""
        if id_ != rank.job:
            changed.add(rank.id)
        rank.job = id_
        if (not found or found.is_alone) and rank.values.pop("lateness", None) is not None:
            changed.add(rank.id)
    return changed


def name_of(job: LiveJob, rank_of: Callable[[str], LiveRank | None]) -> str:
    """The name of the program of its first rank, as in the report of `why`."""
    first = min(job.ranks, key=lambda id_: (job.ranks[id_], id_), default="")
    rank = rank_of(first)
    return title_of(rank.attributes)[:LONGEST_TEXT] if rank else job.name


def spread_lateness(job: LiveJob, rank_of: Callable[[str], LiveRank | None]) -> set[str]:
    """Gives the ranks of a job their lateness. Returns the ids of those whose lateness has changed."""
    changed = set()
    for id_, number in job.ranks.items():
        rank, lateness = rank_of(id_), job.lateness.get(number)
        if rank is None or rank.values.get("lateness") == lateness:
            continue
        changed.add(id_)
        rank.values.pop("lateness", None)
        if lateness is not None:
            rank.values["lateness"] = lateness
    return changed


def _job_of(rank: LiveRank, jobs: Mapping[JobKey, LiveJob], names: Collection[str]) -> LiveJob | None:
    """The job of a launcher precedes those by other names: several launchers may have started jobs of one name."""
    if rank.rank is None:
        return None
    found: dict[str, LiveJob] = {}
    for name in names:
        value = launcher_of(rank.attributes) if name == LAUNCHER else rank.attributes.get(name)
        if job := jobs.get((name, str(value))):
            found[name] = job
    return next((found[name] for name in sorted(found, key=_precedence)), None)


def _precedence(name: str) -> int:
    return 0 if name == LAUNCHER else 2 if name == _UNNAMED else 1


def _verdict(job: LiveJob, seen: SeenValue) -> None:
    name = seen.text("zernel.job.verdict")[:LONGEST_TEXT]
    if seen.value:
        job.verdict = name
    elif job.verdict == name:
        job.verdict = ""


def _lateness(job: LiveJob, seen: SeenValue) -> None:
    rank = seen.attributes.get("zernel.rank")
    if not isinstance(rank, int):
        return
    if seen.value is None:
        job.lateness.pop(rank, None)
    elif rank in job.lateness or len(job.lateness) < _MOST_RANKS:
        job.lateness[rank] = seen.value


def _transfer(job: LiveJob, seen: SeenValue) -> None:
    job.transfer_s = seen.value


def _step(job: LiveJob, seen: SeenValue) -> None:
    job.step_s = seen.value


def _critical(job: LiveJob, seen: SeenValue) -> None:
    rank, phase = seen.attributes.get("zernel.rank"), seen.text("zernel.phase")
    if not isinstance(rank, int) or phase not in PHASES:
        return
    if seen.value is None:
        job.critical.pop(rank, None)
    elif rank in job.critical or len(job.critical) < _MOST_RANKS:
        job.critical.setdefault(rank, {})[phase] = seen.value


JOB_READERS: dict[str, Callable[[LiveJob, SeenValue], None]] = {
    "zernel.job.verdict": _verdict,
    "zernel.job.rank.lateness": _lateness,
    "zernel.job.collective.transfer": _transfer,
    "zernel.job.step.duration": _step,
    "zernel.step.critical_path.time": _critical,
}
"""By metric: how its points change a job. A point without a recorded value removes the field."""
