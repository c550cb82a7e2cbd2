"""The report as text for a terminal or a pipe. The first lines of a job say why it is slow."""

import textwrap
from collections.abc import Iterable, Iterator, Sequence

from otel_zernel.text import printable
from otel_zernel_commands.why.findings import GpuRow, JobFindings, JobStart, RankRow, ThreadRow, WhyReport
from otel_zernel_commands.why.rendering.causes import about_texts, cause_rows, hidden_texts
from otel_zernel_commands.why.rendering.times import TimeRow, device_heading, device_rows, time_rows, times_heading
from otel_zernel_commands.why.terminal import Terminal
from otel_zernel_libraries.training.amounts import amount, percent, with_units_kept
from otel_zernel_libraries.training.causes import JobAnswer
from otel_zernel_libraries.training.hangs import JobHang, hung_rank_text
from otel_zernel_libraries.training.names import PHASES
from otel_zernel_libraries.training.words import PHASE_WORDS, activity_words, throttle_name

_BOLD, _DIM, _HEAD = "1", "2", "1;36"
_LONGEST_LABEL = 52
"""Columns of a label in the tables of times."""
_COSTS = 0.001
_LONGEST_NAME = 44
"""Columns of the name of a cause."""
_NUMBERS = 42
"""Columns of its numbers."""
_TIME = 8
"""Columns of a time."""
_LONGEST_BAR = 40
_FEWEST_BAR = 6
_MOST_SHOWN = 8
"""Threads of a program without steps."""
_MOST_LINES = 6
"""Lines of code of a rank that hangs."""
_MOST_ROWS = 32
"""Ranks in the table. Of more, the latest and the slowest ones are shown."""


def report_text(report: WhyReport, terminal: Terminal) -> str:
    """All jobs, then the GPUs of no job, and what could not be seen. Ends with a line break."""
    blocks = [list(_job(job, report, terminal)) for job in report.jobs]
    if report.gpus and not any(job.gpus for job in report.jobs):
        blocks.append([_heading("GPUs", terminal), *_gpu_lines(report.gpus, terminal)])
    if report.notes:
        blocks.append([_heading("Not seen", terminal), *_listed(report.notes, terminal)])
    return terminal.encodable("\n\n".join("\n".join(block) for block in blocks)) + "\n"


def _job(job: JobFindings, report: WhyReport, terminal: Terminal) -> Iterator[str]:
    for line in textwrap.wrap(job_title(job, report), terminal.width, subsequent_indent="  "):
        yield terminal.coloured(line, _DIM)
    yield ""
    for line in _wrapped(job.diagnosis.sentence, terminal, "  ", "  "):
        yield terminal.coloured(line, _BOLD)
    if job.answer and not job.hang:
        for text in about_texts(job.answer):
            yield from _wrapped(text, terminal, "  ", "  ")
    if job.diagnosis.advice:
        yield ""
        yield from _listed(job.diagnosis.advice, terminal, "  Try: ")
    for heading, lines in _sections(job, terminal):
        yield ""
        yield _heading(heading, terminal)
        yield from lines


def _sections(job: JobFindings, terminal: Terminal) -> Iterator[tuple[str, Iterable[str]]]:
    """The headings below the diagnosis, each with its lines."""
    if job.hang:
        yield "What each rank does" if len(job.hang.ranks) > 1 else "What it does", _hang(job.hang, terminal)
    if job.answer and job.answer.causes:
        yield "What a step would save without", _causes(job.answer, terminal)
    if job.answer and job.answer.hidden:
        yield "Hidden, and not worth touching", _listed(hidden_texts(job.answer), terminal)
    if job.threads:
        yield "Threads", _threads(job, terminal)
    rows, device = time_rows(job), device_rows(job.device) if job.device else []
    label = _label([*rows, *device], terminal)
    if rows:
        yield times_heading(job), _bars(rows, label, terminal)
    if job.device:
        yield device_heading(job.device), _bars(device, label, terminal)
    if job.start:
        yield "Start", _wrapped(start_text(job.start), terminal, "  ", "  ")
    if job.steps.count:
        yield "Step time", _step_times(job, terminal)
    if len(job.ranks) > 1:
        yield "Ranks", _ranks(job, terminal)
    if job.gpus:
        yield "GPUs", _gpu_lines(job.gpus, terminal)
    if job.diagnosis.evidence:
        yield f"Evidence ({job.diagnosis.verdict})", _evidence(job, terminal)
    if job.notes:
        yield "Not seen in this job", _listed(job.notes, terminal)


def job_title(job: JobFindings, report: WhyReport) -> str:
    """The name of the job, its processes, and how long it was watched."""
    ranks = f"{len(job.ranks)} ranks" if len(job.ranks) > 1 else f"pid {job.ranks[0].pid}"
    if job.world_size > len(job.ranks):
        ranks = f"{len(job.ranks)} of {job.world_size} ranks"
    most = max(rank.steps for rank in job.ranks)
    steps = "1 step" if most == 1 else f"{most:,} steps" if most else "no steps"
    ended = ", ended early" if report.is_interrupted else ""
    return f"{job.title} · {ranks} on {job.host} · {steps} in {amount(job.seconds)}{ended}"


def _heading(text: str, terminal: Terminal) -> str:
    return terminal.coloured(text, _HEAD)


def _wrapped(text: str, terminal: Terminal, first: str, rest: str) -> list[str]:
    """Lines within the width. A number stays with its unit."""
    kept = with_units_kept(text)
    lines = textwrap.wrap(kept, terminal.width, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False)
    return [line.replace("\xa0", " ") for line in lines]


def _listed(texts: Iterable[str], terminal: Terminal, lead: str = "  - ") -> Iterator[str]:
    """Each text as an item, with `lead` before the first one."""
    for number, text in enumerate(texts):
        yield from _wrapped(text, terminal, lead if number == 0 else " " * (len(lead) - 2) + "- ", " " * len(lead))


def _label(rows: Iterable[TimeRow], terminal: Terminal) -> int:
    """The columns of the labels of these rows."""
    longest = max((len(_name(row)) for row in rows), default=0)
    return min(longest, _LONGEST_LABEL, terminal.width - 20)


def _name(row: TimeRow) -> str:
    return f"    {row.name}" if row.is_detail else f"  {row.name}"


def _bars(rows: Iterable[TimeRow], label: int, terminal: Terminal) -> Iterator[str]:
    """A line for each row, with a bar."""
    bar = min(_LONGEST_BAR, terminal.width - label - 22)
    for row in rows:
        numbers = f"{percent(row.share):>6} {amount(row.per_step) if row.per_step else '':>9}"
        drawn = terminal.bar(row.share, bar) if bar >= _FEWEST_BAR else ""
        line = f"{_cut(_name(row), label):<{label}} {numbers}  "
        colour = str(PHASE_WORDS[row.phase].terminal) if row.phase and not row.is_detail else _DIM
        yield (line + terminal.coloured(drawn, colour)).rstrip()


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"


def _step_times(job: JobFindings, terminal: Terminal) -> Iterator[str]:
    """The durations of steps, and what the watch added to them."""
    steps = job.steps
    parts = (("p50", steps.p50), ("p90", steps.p90), ("p99", steps.p99), ("longest", steps.longest))
    times = ", ".join(f"{name} {amount(value)}" for name, value in parts) + f"; jitter {percent(steps.jitter)}"
    for text in [times] if job.cost is None else [times, cost_text(job.cost)]:
        yield from _wrapped(text, terminal, "  ", "  ")


def cost_text(cost: float) -> str:
    """What the watch cost the job."""
    return f"Watching slowed the job by {f'about {percent(cost)}' if cost >= _COSTS else 'less than 0.1 %'}."


def start_text(start: JobStart) -> str:
    """How long it took until the job trained at its usual pace."""
    first = f"The first step began {amount(start.first_step_after)} after the start"
    if not start.warm_up_steps:
        return f"{first} and took {amount(start.first_step)}, as a usual step."
    steps = "It" if start.warm_up_steps == 1 else f"The first {start.warm_up_steps} steps together"
    first = f"{first} and took {amount(start.first_step)}"
    return f"{first}. Warm-up: {steps.lower()} took {amount(start.warm_up)} longer than usual."


def _ranks(job: JobFindings, terminal: Terminal) -> Iterator[str]:
    columns = [phase for phase in PHASES if any(rank.shares.get(phase, 0) >= 0.005 for rank in job.ranks)]
    head = ["rank", "pid", "late", "p50", *(PHASE_WORDS[phase].short for phase in columns)]
    shown = _shown(job.ranks)
    rows = [[str(rank.rank), str(rank.pid), _late(rank), amount(rank.p50), *_percents(rank, columns)] for rank in shown]
    widths = [max(len(row[at]) for row in [head, *rows]) for at in range(len(head))]
    while sum(widths) + 2 * len(widths) > terminal.width and len(widths) > 3:
        widths.pop()
    latest = max((rank.lateness or 0.0 for rank in job.ranks), default=0.0)
    yield terminal.coloured(_row(head, widths), _DIM)
    for shown_rank, row in zip(shown, rows, strict=True):
        is_late = job.diagnosis.verdict == "straggler" and shown_rank.lateness == latest
        line = _row(row, widths)
        yield f"{terminal.coloured(line, _BOLD)} <" if is_late else line
    if len(shown) < len(job.ranks):
        yield f"  and {len(job.ranks) - len(shown)} more ranks, all in --json"


def _shown(ranks: Sequence[RankRow]) -> list[RankRow]:
    latest = sorted(ranks, key=lambda rank: (-(rank.lateness or 0.0), -rank.p50))[:_MOST_ROWS]
    return sorted(latest, key=lambda rank: rank.rank or 0)


def _late(rank: RankRow) -> str:
    return "-" if rank.lateness is None else amount(rank.lateness)


def _percents(rank: RankRow, phases: Iterable[str]) -> list[str]:
    return [percent(rank.shares.get(phase, 0.0)) for phase in phases]


def _row(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  " + "  ".join(f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=False))


def _gpu_lines(gpus: Sequence[GpuRow], terminal: Terminal) -> Iterator[str]:
    for text in gpu_texts(gpus):
        yield from _wrapped(text, terminal, "  ", "    ")


def gpu_texts(gpus: Sequence[GpuRow]) -> list[str]:
    """Each GPU as a sentence: its use, and the reasons for lower clocks."""
    names_host = len({gpu.host for gpu in gpus}) > 1
    return [_gpu_text(gpu, f" on {gpu.host}" if names_host else "") for gpu in gpus]


def _gpu_text(gpu: GpuRow, place: str) -> str:
    parts = [
        f"busy {percent(gpu.utilization)}" if gpu.utilization is not None else "",
        f"memory {percent(gpu.memory)}" if gpu.memory is not None else "",
        f"{gpu.power:.0f} W" if gpu.power is not None else "",
        f"{gpu.temperature:.0f} C" if gpu.temperature is not None else "",
    ]
    reasons = gpu.slowed or {}
    slowed = [f"throttled {percent(share)} of the time ({throttle_name(reason)})" for reason, share in reasons.items()]
    if gpu.slowed is not None and not slowed:
        slowed = ["not throttled"]
    name = f", {gpu.name}" if gpu.name else ""
    return f"{gpu.title}{place}{name}: " + ", ".join([*filter(None, parts), *slowed])


def _threads(job: JobFindings, terminal: Terminal) -> Iterator[str]:
    """A line for each of the busiest threads."""
    for row in job.threads[:_MOST_SHOWN]:
        yield from _wrapped(f"{row.name} ({row.tid}): {thread_text(row)}", terminal, "  ", "    ")
    if len(job.threads) > _MOST_SHOWN:
        yield f"  and {len(job.threads) - _MOST_SHOWN} more threads, in --json"


def thread_text(row: ThreadRow) -> str:
    """What a thread did: `is on a CPU 93 %, waits for a CPU 6.8 %`."""
    parts = [("is on a CPU", row.cpu), *((activity_words(name), share) for name, share in row.waits.items())]
    named = [f"{words} {percent(share)}" for words, share in parts if share >= 0.005]
    return ", ".join(named) or "has ended"


def _hang(hang: JobHang, terminal: Terminal) -> Iterator[str]:
    """The ranks of a hang, the guilty ones first, each with its lines of code."""
    for rank in hang.ranks[:_MOST_ROWS]:
        yield from _wrapped(hung_rank_text(rank), terminal, "  ", "    ")
        for line in rank.code[:_MOST_LINES]:
            yield from _wrapped(printable(line), terminal, "      ", "        ")
    if len(hang.ranks) > _MOST_ROWS:
        yield f"  and {len(hang.ranks) - _MOST_ROWS} more ranks, all in --json"


def _causes(answer: JobAnswer, terminal: Terminal) -> Iterator[str]:
    """A line for each cause with its gain, the bounds of the gain, and its share of a step. Below it its lines of code,
    its evidence, and the first advice of all but the first cause, whose advice is above."""
    rows = cause_rows(answer)
    label = min(max(len(row.name) for row in rows) + 4, _LONGEST_NAME)
    fits = label + _NUMBERS <= terminal.width
    for number, row in enumerate(rows, 1):
        name, numbers = f"{number}. {row.name}", f"{row.gain:>8}  {row.share:>5}  ({row.bounds})"
        if fits:
            yield f"  {_cut(name, label):<{label}} {numbers}"
        else:
            yield from _wrapped(name, terminal, "  ", "     ")
            yield f"     {' '.join(numbers.split())}"
        yield from _code(row.lines, terminal)
        for text in row.evidence:
            yield from _wrapped(text, terminal, "     ", "     ")
        for text in row.advice[:1] if number > 1 else ():
            yield from _wrapped(f"Try: {text}", terminal, "     ", "     ")


def _code(lines: Sequence[tuple[str, str]], terminal: Terminal) -> Iterator[str]:
    """The lines of code of a cause, with their times in a column if there is room."""
    width = max((len(text) for text, _ in lines), default=0)
    fits = width + _TIME + 7 <= terminal.width
    for text, seconds in lines:
        if fits:
            yield f"     {text:<{width}}  {seconds:>{_TIME}}"
        else:
            yield from _wrapped(f"{text} ({seconds})", terminal, "     ", "       ")


def _evidence(job: JobFindings, terminal: Terminal) -> Iterator[str]:
    rows = job.diagnosis.evidence
    width = max((len(name) for name, _ in rows), default=0)
    fits = all(width + len(value) + 4 <= terminal.width for _, value in rows)
    for name, value in rows:
        if fits:
            yield f"  {name:<{width}}  {value}"
        else:
            yield from _wrapped(f"{name}: {value}", terminal, "  ", "    ")
