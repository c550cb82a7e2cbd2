"""The whole screen: a pure function from the state, the choices of the user and the size to styled lines.

Columns of the table of jobs that do not fit leave from the right.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from otel_zernel_commands.watch.reading import number, objects, rows, text
from otel_zernel_commands.watch.screens import amounts, summary
from otel_zernel_commands.watch.screens.columns import Column, fitting, heading
from otel_zernel_commands.watch.screens.gpu_table import limited_gpus, shown_gpus
from otel_zernel_commands.watch.screens.phase_bars import phase_bar
from otel_zernel_commands.watch.screens.rank_rows import RankFields, shown_ranks
from otel_zernel_commands.watch.screens.rank_table import RankTable, rank_lines
from otel_zernel_commands.watch.screens.verdicts import rank_name, verdict_sentences
from otel_zernel_commands.watch.screens.watch_view import WatchView
from otel_zernel_commands.watch.styled import StyledLine, StyledSpan, Surface, clipped
from otel_zernel_libraries.training.words import PHASE_WORDS

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
    members = {id_: [rank for rank in rows(job, "ranks") if isinstance(rank, str)] for id_, job in jobs.items()}
    known = {rank for of_job in members.values() for rank in of_job}
    members |= {id_: [id_] for id_ in ranks if id_ not in known}
    members = {
        id_: those for id_, of_job in members.items() if (those := [member for member in of_job if member in ranks])
    }
    fields = [_job(state, id_, those, has_all_gpus=len(members) == 1) for id_, those in members.items()]
    return sorted(fields, key=lambda job: (not job.is_fault, job.name, job.id))


def shown_jobs(jobs: list[JobFields], view: WatchView) -> list[JobFields]:
    """The jobs that match the filter: each word is in a name."""
    words = view.filter.casefold().split()
    return [job for job in jobs if all(word in _words_of(job) for word in words)]


def _job(state: State, id_: str, members: list[str], *, has_all_gpus: bool) -> JobFields:
    ranks, jobs = objects(state, "ranks"), objects(state, "jobs")
    own = {
        **state,
        "ranks": {member: ranks[member] for member in members},
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
    used = {text(ranks[member], "gpu") for member in members}
    return {id_: gpu for id_, gpu in objects(state, "gpus").items() if id_ in used}


def _rate(job: JobFields) -> str:
    values = job.values("step_rate")
    return amounts.rate(sum(values) / len(values)) if values else ""


def _median(job: JobFields) -> str:
    values = job.values("step", "p50")
    return amounts.seconds(values[len(values) // 2]) if values else ""


def _slowest(job: JobFields) -> str:
    values = job.values("step", "p99")
    return amounts.seconds(values[-1]) if values else ""


def _finding(job: JobFields) -> str:
    return ("! " if job.is_fault else "") + job.finding


BAR: Column[JobFields] = Column("WHERE TIME GOES", lambda _: "", is_right=False)
FINDING = Column("FINDING", _finding, is_right=False, most=54, shrinks=True)
COLUMNS: tuple[Column[JobFields], ...] = (
    Column("JOB", lambda job: job.name, is_right=False, most=20),
    Column("WHO", lambda job: job.who, is_right=False, most=12),
    Column("P50", _median),
    FINDING,
    Column("STEP/S", _rate),
    Column("P99", _slowest),
    BAR,
)


def job_lines(jobs: Sequence[JobFields], surface: Surface, selected: str) -> list[StyledLine]:
    """A heading, and a line for each job. `selected` is the id of one."""
    columns = fitting(COLUMNS, jobs, surface, kept=COLUMNS)
    return [heading(columns, surface), *(_line(job, columns, surface, job.id == selected) for job in jobs)]


def _line(
    job: JobFields, columns: Sequence[tuple[Column[JobFields], int]], surface: Surface, is_selected: bool
) -> StyledLine:
    style = "selected" if is_selected else ""
    spans: list[StyledSpan] = [(">" if is_selected else " ", style)]
    for column, width in columns:
        if column is BAR:
            spans += [*phase_bar(summary.mean_shares(job.state), width), (" ", style)]
            continue
        cell = surface.fit(column.cell(job), width, right=column.is_right)
        spans.append((cell + " ", style or ("fault" if column is FINDING and job.is_fault else "")))
    return tuple(spans)


_KEYS = (
    ("q, Ctrl-C", "quit"),
    ("? or h", "this help"),
    ("arrows, j k", "choose a process; PgUp, PgDn, Home, End"),
    ("Enter", "the job, or the process, in detail; Esc goes back"),
    ("s and r", "next column to sort by; reverse it"),
    ("S and R", "the same for the second column, for equal values"),
    ("/", "filter by rank, pid, job, host, phase or verdict; Esc clears it"),
    ("space", "freeze the screen"),
    ("g", "processes and GPUs, processes only, GPUs only"),
    ("+ and -", "longer or shorter time between updates"),
)
_COLUMNS = (
    ("P50, P99", "median and 99th percentile of the step times of the last minute"),
    ("LAST STEPS", "where the time of the last 10 steps went; without steps, of the last minute"),
    ("LATE", "how much later than the first rank it reaches collectives in a step"),
    ("COLL", "duration of its collectives (NCCL)"),
    ("LAUNCH", "latency of CUDA kernel launches"),
    ("BUSY, SM", "time with a running kernel; share of the SMs at work"),
)


def help_lines(surface: Surface) -> list[StyledLine]:
    """Keys, letters of phases, columns."""
    lines: list[StyledLine] = [(("Keys", "heading"),)]
    lines += [_pair(key, text, surface) for key, text in _KEYS]
    lines += [((" ", ""),), (("Phases: letter in bars, word in the table", "heading"),)]
    for phase, words in PHASE_WORDS.items():
        short = f" {words.short:<8}"
        lines.append(((" ", ""), (f" {words.letter} ", f"on_{phase}"), (short, phase), (words.name, "")))
    lines += [((" ", ""),), (("Columns", "heading"),)]
    lines += [_pair(title, text, surface) for title, text in _COLUMNS]
    return lines


def _pair(key: str, text: str, surface: Surface) -> StyledLine:
    return ((f" {key:<12} ", "bold"), (surface.cut(text, max(surface.columns - 14, 0)), ""))


_BLANK: StyledLine = (("", ""),)
_FEWEST_FOR_PHASES = 12
"""Rows of a screen. Smaller ones have no bar of the mean phases."""
_FEWEST_FOR_GPUS = 16
_FEWEST_FOR_NOTES = 8
"""Rows that notes leave to the rest."""
_WIDE_FOOTER = 76
_GPU_PART = 3
"""GPUs take at most this part of the rows that are left."""


@dataclass(frozen=True, slots=True)
class DrawnScreen:
    """The lines of a screen, no longer than its width, and what keys need to know of it."""

    lines: list[StyledLine]
    shown: list[str]
    """The ids of the ranks in the order of the table, also of those beyond the screen."""
    page_rows: int
    """Ranks that fit."""


def draw(state: Mapping[str, Any], view: WatchView, status: summary.FeedStatus, surface: Surface) -> DrawnScreen:
    """Draws. Changes only `view.top`, so that the selected row stays on the screen, and between a job and all jobs."""
    jobs = jobs_of(state)
    job = next((job for job in jobs if job.id == view.job), jobs[0] if len(jobs) == 1 else None)
    _turn_page(view, has_list=len(jobs) > 1 and job is None)
    lines = [summary.header(state, status, surface, is_frozen=view.is_frozen, jobs=len(jobs))]
    lines += summary.trouble_lines(state, status, surface)
    room = 1 << 30 if surface.rows is None else max(surface.rows - 1, 0)
    notes = list(summary.note_lines(state, status, surface))[: max(room - len(lines) - _FEWEST_FOR_NOTES, 0)]
    room -= len(notes)
    if view.page == "jobs":
        shown, page_rows, total = _jobs_page(lines, state, jobs, view, surface, room)
    else:
        own = job.state if job else state
        shown, page_rows = _job_page(lines, own, view, status, surface, room, _title(job, len(jobs)))
        total = len(objects(own, "ranks"))
    lines = lines[:room]
    if surface.rows is not None:
        lines += [_BLANK] * (room - len(lines))
    elif notes:
        lines.append(_BLANK)
    lines += notes
    if surface.rows is not None:
        lines.append(_footer(view, len(shown), total, surface, many=len(jobs) > 1))
    return DrawnScreen([clipped(line, surface.columns) for line in lines], shown, page_rows)


def _turn_page(view: WatchView, *, has_list: bool) -> None:
    """Shows all jobs if none is chosen, and a job if one is."""
    if has_list and view.page == "table":
        view.page = "jobs"
    elif not has_list and view.page == "jobs":
        view.page = "table"


def _title(job: JobFields | None, many: int) -> str:
    """The name of the job; empty if there is only one."""
    return f"{job.name}, {job.who}" if job and many > 1 else ""


def _jobs_page(
    lines: list[StyledLine],
    state: Mapping[str, Any],
    jobs: list[JobFields],
    view: WatchView,
    surface: Surface,
    room: int,
) -> tuple[list[str], int, int]:
    """Adds the tables of jobs and GPUs; for a pipe, each job after them. Returns the shown ids, room, and the total."""
    shown = shown_jobs(jobs, view)
    ids = [job.id for job in shown]
    if not shown:
        lines += [_BLANK, ((surface.cut(f"No job matches the filter {view.filter}.", surface.columns), "dim"),)]
        return ids, 10, len(jobs)
    page_rows = max(room - len(lines) - 2, 1)
    view.top = _top(view, ids, page_rows)
    selected = view.selected if view.selected in ids else ids[0]
    is_screen = surface.rows is not None
    lines += [_BLANK, *job_lines(shown[view.top : view.top + page_rows], surface, selected if is_screen else "")]
    left = room - len(lines)
    if (gpus := shown_gpus(state)) and left > _FEWEST_FOR_NOTES:
        lines += [_BLANK, *limited_gpus(gpus, left - 2, surface)]
    for job in shown if not is_screen else ():
        lines.append(_BLANK)
        _table_page(lines, job.state, shown_ranks(job.state, view), view, surface, room, _title(job, len(jobs)))
    return ids, page_rows, len(jobs)


def _job_page(
    lines: list[StyledLine],
    state: Mapping[str, Any],
    view: WatchView,
    status: summary.FeedStatus,
    surface: Surface,
    room: int,
    title: str,
) -> tuple[list[str], int]:
    """Adds the page of one job, one of its ranks, or the help. Returns the ids of the shown ranks, and how many fit."""
    ranks = shown_ranks(state, view)
    page_rows = 10
    chosen = next((rank for rank in ranks if rank.id == view.selected), ranks[0] if ranks else None)
    if view.page == "help":
        lines += help_lines(surface)
    elif view.page == "rank" and chosen:
        lines += rank_lines(chosen, state, status.now_ms, surface)
    else:
        page_rows = _table_page(lines, state, ranks, view, surface, room, title)
    return [rank.id for rank in ranks], page_rows


def _table_page(
    lines: list[StyledLine],
    state: Mapping[str, Any],
    ranks: Sequence[RankFields],
    view: WatchView,
    surface: Surface,
    room: int,
    title: str,
) -> int:
    """Adds verdicts, phases, GPUs and ranks. Returns how many ranks fit."""
    if title:
        lines.append(((surface.cut(title, surface.columns), "heading"),))
    lines += summary.verdict_lines(state, surface)
    lines += summary.code_lines(state, surface)
    if (total := summary.total_line(state, surface)) is not None:
        lines.append(total)
    if room >= _FEWEST_FOR_PHASES and view.panels != "gpus" and (bars := summary.time_lines(state, surface)):
        lines += [_BLANK, *bars] if room > _FEWEST_FOR_GPUS else bars
    gpus = shown_gpus(state) if view.panels != "ranks" else []
    if gpus and (room >= _FEWEST_FOR_GPUS or view.panels == "gpus"):
        lines += [_BLANK, *limited_gpus(gpus, _gpu_room(room - len(lines), view), surface)]
    if view.panels == "gpus":
        return 10
    if not ranks:
        lines += [_BLANK, ((surface.cut(_no_rank(state, view), surface.columns), "dim"),)]
        return 10
    return _add_ranks(lines, ranks, view, surface, room)


def _add_ranks(
    lines: list[StyledLine], ranks: Sequence[RankFields], view: WatchView, surface: Surface, room: int
) -> int:
    """Adds the table of ranks. Returns how many fit."""
    if room - len(lines) > 4:
        lines.append(_BLANK)
    table = RankTable(ranks, surface, view)
    lines.append(table.heading())
    page_rows = max(room - len(lines), 1)
    view.top = _top(view, [rank.id for rank in ranks], page_rows)
    for rank in ranks[view.top : view.top + page_rows]:
        is_selected = surface.rows is not None and rank.id == view.selected
        lines.append(table.line(rank, is_selected=is_selected))
    return page_rows


def _gpu_room(left: int, view: WatchView) -> int:
    """Lines for the table of GPUs, with its heading."""
    return left - 1 if view.panels == "gpus" else max(left // _GPU_PART, 2)


def _no_rank(state: Mapping[str, Any], view: WatchView) -> str:
    if view.filter:
        return f"No process matches the filter {view.filter}."
    return "No training process yet." if not state.get("gpus") else "No training process yet; only GPUs report."


def _top(view: WatchView, shown: Sequence[str], page_rows: int) -> int:
    """The first row, so that the selected one is visible."""
    at = shown.index(view.selected) if view.selected in shown else 0
    lowest = max(len(shown) - page_rows, 0)
    return min(max(min(view.top, at), at - page_rows + 1), lowest)


def _footer(view: WatchView, count: int, total: int, surface: Surface, *, many: bool) -> StyledLine:
    if view.is_typing:
        return ((surface.cut(f"filter: {view.filter}_   Enter keeps it, Esc clears it", surface.columns), "footer"),)
    if view.page == "jobs":
        matching = f"{count} of {total} match {view.filter}  " if view.filter else ""
        return (
            (
                surface.fit(f" {matching}q quit  ? help  Enter the job  / filter  space freeze", surface.columns),
                "footer",
            ),
        )
    if view.page != "table":
        back = "Esc back  j k other process  q quit" if view.page == "rank" else "Esc back  q quit"
        return ((surface.fit(f" {back}", surface.columns), "footer"),)
    first, second = view.orders
    order = first.key if second.key == first.key else f"{first.key}, {second.key}"
    matching = f"{count} of {total} match {view.filter}  " if view.filter else ""
    matching = ("Esc all jobs  " if many else "") + matching
    if surface.columns < _WIDE_FOOTER:
        return ((surface.fit(f" {matching}q ? s:{first.key} / Enter space", surface.columns), "footer"),)
    text = f" {matching}q quit  ? help  s sort: {order}  / filter  Enter detail  space freeze  every {view.interval:g}s"
    return ((surface.fit(text, surface.columns), "footer"),)
