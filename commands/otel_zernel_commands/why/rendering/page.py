"""The report as a page in one file: it needs no network, and its policy forbids every request.

Every text in it is escaped, because names of jobs and processes are untrusted. Its numbers are in tables. The script
draws the time line, the heat map and the flame graph from a block of JSON.
"""

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from importlib.resources import files

from otel_zernel_commands.why.findings import JobFindings, RankRow, WhyReport
from otel_zernel_commands.why.rendering.causes import about_texts, cause_rows, hidden_texts
from otel_zernel_commands.why.rendering.drawing import drawing_json
from otel_zernel_commands.why.rendering.flames import code_rows
from otel_zernel_commands.why.rendering.text import (
    cost_text,
    gpu_texts,
    job_title,
    report_text,
    start_text,
    thread_text,
)
from otel_zernel_commands.why.rendering.times import TimeRow, device_heading, device_rows, time_rows, times_heading
from otel_zernel_commands.why.terminal import Terminal
from otel_zernel_libraries.output_files import inline_hash
from otel_zernel_libraries.training.amounts import amount, percent
from otel_zernel_libraries.training.causes import JobAnswer
from otel_zernel_libraries.training.hangs import hung_rank_text
from otel_zernel_libraries.training.names import PHASES
from otel_zernel_libraries.training.words import phase_name, phases_css

_MOST_RANKS = 256
"""Ranks in the table. The JSON output has all."""
_ZOOM = (
    ("left", "&larr;", "earlier"),
    ("right", "&rarr;", "later"),
    ("in", "+", "zoom in"),
    ("out", "&minus;", "zoom out"),
)


def page(report: WhyReport) -> str:
    """The whole HTML document."""
    style, script = phases_css() + _file("page.css"), _file("page.js")
    parts = {
        "policy": "default-src 'none'; base-uri 'none'; form-action 'none'; img-src data:; "
        f"style-src {inline_hash(style)}; script-src {inline_hash(script)}",
        "title": escape(f"why: {report.jobs[0].title}" if report.jobs else "why"),
        "style": style,
        "body": "\n".join(_body(report)),
        "data": drawing_json(report.jobs),
        "script": script,
    }
    pieces = _file("page.html").split("@")  # the names of the parts are the odd pieces
    return "".join(parts[piece] if number % 2 else piece for number, piece in enumerate(pieces))


def _file(name: str) -> str:
    return (files(__package__) / name).read_text("utf-8")


def _body(report: WhyReport) -> Iterator[str]:
    for job in report.jobs:
        yield '<section class="job">'
        yield from _job(job, report)
        yield "</section>"
    if report.gpus and not any(job.gpus for job in report.jobs):
        yield from _list("GPUs", gpu_texts(report.gpus), "gpus")
    yield from _list("Not seen", report.notes, "notes")
    text = report_text(report, Terminal())
    yield f"<details><summary>The report as text</summary><pre>{escape(text)}</pre></details>"


def _job(job: JobFindings, report: WhyReport) -> Iterator[str]:
    yield f'<p class="about">{escape(job_title(job, report))}</p>'
    yield f'<h1 class="why">{escape(job.diagnosis.sentence)}</h1>'
    if job.answer and not job.hang:
        yield from (f'<p class="where">{escape(text)}</p>' for text in about_texts(job.answer))
    yield from _list("What to try", job.diagnosis.advice, "advice")
    if job.hang:
        ranks = ["\n".join((hung_rank_text(rank), *rank.code)) for rank in job.hang.ranks[:_MOST_RANKS]]
        yield from _list("What each rank does", tuple(ranks), "hang")
    if job.answer:
        yield from _causes(job.answer)
        yield from _list("Hidden, and not worth touching", tuple(hidden_texts(job.answer)), "hidden")
    yield from _table(times_heading(job), time_rows(job))
    yield from _flames(job)
    if job.device:
        yield from _table(device_heading(job.device), device_rows(job.device))
    threads = [f"{row.name} ({row.tid}): {thread_text(row)}" for row in job.threads]
    yield from _list("Threads", tuple(threads), "threads")
    if job.start:
        yield f'<h2>Start</h2><p class="start">{escape(start_text(job.start))}</p>'
    if job.steps.count:
        yield from _step_times(job)
    if job.cost is not None:
        yield f'<p class="hint cost">{escape(cost_text(job.cost))}</p>'
    if any(rank.bars for rank in job.ranks):
        yield from _plots(job)
    if len(job.ranks) > 1:
        yield from _ranks(job)
    yield from _list("GPUs", gpu_texts(job.gpus), "gpus")
    if job.diagnosis.evidence:
        yield f'<h2>Evidence for the verdict <code class="verdict">{escape(job.diagnosis.verdict)}</code></h2>'
        rows = (f"<tr><td>{escape(name)}</td><td>{escape(value)}</td></tr>" for name, value in job.diagnosis.evidence)
        yield f'<table class="evidence"><tbody>{"".join(rows)}</tbody></table>'
    yield from _list("Not seen in this job", job.notes, "notes")


def _causes(answer: JobAnswer) -> Iterator[str]:
    """The ranked list, with the evidence and the advice of each cause."""
    rows = cause_rows(answer)
    if not rows:
        return
    head = "".join(f"<th>{name}</th>" for name in ("cause", "saves", "bounds", "of a step"))
    yield '<h2>What a step would save without</h2><div class="scroll"><table class="causes">'
    yield f"<thead><tr>{head}</tr></thead><tbody>"
    for number, row in enumerate(rows):
        advice = row.advice if number else ()  # that of the first cause is above
        texts = (*row.evidence, *(f"Try: {text}" for text in advice))
        lines = "".join(f"<p><code>{escape(text)}</code> {seconds}</p>" for text, seconds in row.lines)
        about = lines + "".join(f"<p>{_with_code(text)}</p>" for text in texts)
        cells = "".join(f"<td>{escape(cell)}</td>" for cell in (row.gain, row.bounds, row.share))
        yield f'<tr><td class="text"><b>{escape(row.name)}</b>{about}</td>{cells}</tr>'
    yield "</tbody></table></div>"


def _table(heading: str, rows: Sequence[TimeRow]) -> Iterator[str]:
    """A table of times with bars."""
    if rows:
        yield f'<h2>{escape(heading)}</h2><table class="times"><tbody>'
        yield from map(_time_row, rows)
        yield "</tbody></table>"


def _time_row(row: TimeRow) -> str:
    kind = ' class="detail"' if row.is_detail else ""
    per_step = amount(row.per_step) if row.per_step else ""
    name = escape(row.phase or "device")
    drawn = f'<rect class="{name}" width="{max(row.share * 100, 0.3):.2f}" height="14" rx="0"></rect>'
    svg = f'<svg viewBox="0 0 100 14" preserveAspectRatio="none" aria-hidden="true">{drawn}</svg>'
    cells = f'<td>{escape(row.name)}</td><td>{percent(row.share)}</td><td>{per_step}</td><td class="drawn">{svg}</td>'
    return f"<tr{kind}>{cells}</tr>"


def _flames(job: JobFindings) -> Iterator[str]:
    """The flame graph that the script draws, and its longest lines as a table."""
    rows = code_rows(job)
    if not rows:
        return
    yield '<h2>Lines of code</h2><div class="plot"><div class="bar"><span class="path"></span>'
    yield '<span class="zoom"><button type="button" data-do="whole" title="show everything">all</button></span></div>'
    yield '<svg class="flames" role="group" aria-label="Where the time goes, from ranks to lines of code."></svg>'
    yield '<p class="hint">Click a box to zoom. Keys: Tab, Enter, Escape. The table has the longest lines.</p></div>'
    head = "".join(f"<th>{name}</th>" for name in ("line", "rank" if len(job.ranks) > 1 else "pid", "where", "share"))
    yield '<details class="lines"><summary>The longest lines</summary><div class="scroll"><table>'
    yield f"<thead><tr>{head}</tr></thead><tbody>"
    for row in rows:
        cells = "".join(f"<td>{escape(cell)}</td>" for cell in (row.rank, row.place, percent(row.share)))
        yield f'<tr><td class="text"><code>{escape(row.line)}</code></td>{cells}</tr>'
    yield "</tbody></table></div></details>"


def _step_times(job: JobFindings) -> Iterator[str]:
    steps = job.steps
    tiles = (
        ("p50", amount(steps.p50)),
        ("p90", amount(steps.p90)),
        ("p99", amount(steps.p99)),
        ("longest", amount(steps.longest)),
        ("jitter", percent(steps.jitter)),
        ("steps of all ranks" if len(job.ranks) > 1 else "steps", f"{steps.count:,}"),
    )
    yield '<h2>Step time</h2><ul class="tiles">'
    yield from (f'<li data-name="{name}"><span>{name}</span><b>{value}</b></li>' for name, value in tiles)
    yield "</ul>"


def _plots(job: JobFindings) -> Iterator[str]:
    keys = "".join(f'<span class="key"><i class="{phase}"></i>{phase_name(phase)}</span>' for phase in PHASES)
    buttons = "".join(
        f'<button type="button" data-do="{do}" title="{title}" aria-label="{title}">{sign}</button>'
        for do, sign, title in (*_ZOOM, ("all", "all", "show everything"))
    )
    ranks = "1 process" if len(job.ranks) == 1 else f"{len(job.ranks)} ranks"
    yield "<h2>Time line of steps</h2>"
    yield f'<div class="plot"><div class="bar">{keys}<span class="zoom">{buttons}</span></div>'
    yield _canvas("line", f"The steps of {ranks} over time, by phase.")
    yield '<p class="hint">Drag to zoom, double-click to see everything. Keys: + - 0 and arrows.</p>'
    yield '<h2>Step durations over time</h2><div class="plot">'
    yield _canvas("heat", "How many steps took how long, over time.")


def _canvas(name: str, text: str) -> str:
    return f'<canvas class="{name}" tabindex="0" role="img" aria-label="{text}"></canvas></div>'


def _ranks(job: JobFindings) -> Iterator[str]:
    phases = [phase for phase in PHASES if any(rank.shares.get(phase, 0) >= 0.005 for rank in job.ranks)]
    head = ("rank", "pid", "steps", "late by", "p50", "p99", *map(phase_name, phases))
    yield '<h2>Ranks</h2><div class="scroll"><table class="ranks"><thead><tr>'
    yield "".join(f"<th>{name}</th>" for name in head)
    yield "</tr></thead><tbody>"
    latest = max((rank.lateness or 0.0 for rank in job.ranks), default=0.0)
    for rank in job.ranks[:_MOST_RANKS]:
        is_late = job.diagnosis.verdict == "straggler" and rank.lateness == latest
        cells = "".join(f"<td>{cell}</td>" for cell in _cells(rank, phases))
        yield f'<tr class="late">{cells}</tr>' if is_late else f"<tr>{cells}</tr>"
    yield "</tbody></table></div>"
    if len(job.ranks) > _MOST_RANKS:
        yield f'<p class="hint">and {len(job.ranks) - _MOST_RANKS} more ranks</p>'


def _cells(rank: RankRow, phases: list[str]) -> Iterator[str]:
    late = "-" if rank.lateness is None else amount(rank.lateness)
    yield from (str(rank.rank), str(rank.pid), f"{rank.steps:,}", late, amount(rank.p50), amount(rank.p99))
    yield from (percent(rank.shares.get(phase, 0.0)) for phase in phases)


def _list(heading: str, texts: "Iterable[str] | tuple[str, ...] | map[str]", name: str) -> Iterator[str]:
    items = "".join(f"<li>{_with_code(text)}</li>" for text in texts)
    if items:
        yield f'<h2>{heading}</h2><ul class="{name}">{items}</ul>'


def _with_code(text: str) -> str:
    """The text, escaped, with the parts in backquotes as code."""
    pieces = escape(text).split("`")
    if len(pieces) % 2 == 0:  # an odd backquote
        return escape(text)
    return "".join(f"<code>{piece}</code>" if number % 2 else piece for number, piece in enumerate(pieces))
