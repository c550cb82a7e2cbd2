"""Why a job is slow: the verdict of `phases` in one sentence, with its evidence and what to try."""

from collections.abc import Sequence

from otel_zernel_commands.why.findings.advice import advice_on
from otel_zernel_commands.why.findings.facts import Facts
from otel_zernel_commands.why.findings.lead import diagnosis_by
from otel_zernel_commands.why.findings.report import Diagnosis, GpuRow, TimeShare
from otel_zernel_commands.why.findings.shares import slowest_phase
from otel_zernel_commands.why.findings.stragglers import excess_of, straggler_and_others
from otel_zernel_libraries.training import (
    DELAYS,
    ESSENTIAL_MARKS,
    FEWEST_STEPS,
    PHASE_OF,
    detail_name,
    phase_name,
    semconv,
    throttle_name,
    verdict_of_shares,
    verdict_words,
)
from otel_zernel_libraries.training.amounts import amount, percent
from otel_zernel_libraries.training.state import SeenProcess

_SLOW = 1.2
"""How much longer than half of the steps the slowest tenth takes, at least, to be worth a line."""
_THROTTLED = 0.1
"""The share of readings with lowered clocks that is worth a line."""


UNDECIDED = frozenset({"no_scopes", "marks_missing", "too_few_steps", "lost_events"})
"""Verdicts on jobs whose steps are not known well enough to name causes."""


def diagnosis_of(facts: Facts) -> Diagnosis:
    """The diagnosis of one job."""
    verdict, answer = verdict_of(facts), facts.group.answer
    if answer and verdict not in UNDECIDED:
        return diagnosis_by(answer, facts.gpus)
    evidence = tuple(_evidence(facts, verdict))
    return Diagnosis(verdict, _sentence(facts, verdict), evidence, tuple(advice_on(facts, verdict)))


def verdict_of(facts: Facts) -> str:
    """The verdict on the table below the sentence, by the rules of `phases`. A late rank comes first."""
    group = facts.group
    if all(one.source != "scopes" for one in group.processes):
        return "no_scopes"
    lacks_marks = any(not ESSENTIAL_MARKS.isdisjoint(one.missing_marks) for one in group.processes)
    if group.trained < FEWEST_STEPS:
        return "marks_missing" if lacks_marks else "too_few_steps"
    if group.is_lossy:
        return "lost_events"
    of_ranks, verdict = facts.comparison.name, verdict_of_shares(facts.values, facts.thresholds)
    if of_ranks == "straggler" or (of_ranks == "slow_link" and verdict in ("communication_bound", "none")):
        return of_ranks
    return "marks_missing" if lacks_marks and verdict == "none" else verdict


def _sentence(facts: Facts, verdict: str) -> str:
    if verdict == "straggler":
        return _of_straggler(facts)
    if verdict == "unstable":
        return _of_unstable(facts)
    if verdict == "host_bound":
        return _of_phase(facts, verdict, facts.detail("unknown", "host"))
    if verdict in PHASE_OF or verdict == "slow_link":
        return _of_phase(facts, verdict, facts.phase(PHASE_OF.get(verdict, "nccl_collective")))
    return _of_nothing(facts, verdict)


def _of_phase(facts: Facts, verdict: str, row: TimeShare) -> str:
    takes = f"{amount(row.per_step)} of each {amount(facts.step)} step ({percent(row.share)})"
    detail = facts.longest_detail(row.phase)
    mostly = f", mostly {detail_name(detail.detail)}" if detail and detail.share < 0.95 * row.share else ""
    result = f"{verdict_words(verdict).sentence}: {takes}"
    if verdict == "input_bound":
        return f"{result} goes to {_named(detail) or phase_name(row.phase)}."
    if verdict == "host_bound":
        return f"{result} is neither data, computation nor a wait that is known."
    if verdict == "compute_bound":
        return f"{result}{mostly}. No wait is worth removing{_throttled(facts.gpus)}."
    if verdict == "slow_link":
        return f"{result}. No rank is late, so the transfer itself is slow."
    return f"{result}{mostly}."


def _named(detail: TimeShare | None) -> str:
    article = "the " if detail and detail.detail == "loader" else ""
    return article + detail_name(detail.detail) if detail else ""


def _throttled(gpus: Sequence[GpuRow]) -> str:
    throttled = [
        (share, row.index, reason)
        for row in gpus
        for reason, share in (row.slowed or {}).items()
        if share >= _THROTTLED
    ]
    if not throttled:
        return ""
    share, index, reason = max(throttled)
    return f", but GPU {index} is throttled {percent(share)} of the time ({throttle_name(reason)})"


def _of_straggler(facts: Facts) -> str:
    comparison = facts.comparison
    rank = comparison.latest
    size = int(facts.group.processes[0].attributes.get(semconv.WORLD_SIZE, 2))  # type: ignore[arg-type]  # an int
    delays = DELAYS[0].format(f"Rank {rank}")
    late = f"{delays} by {amount(comparison.lateness_s[rank])} of each {amount(facts.step)} step."
    excess = excess_of(*straggler_and_others(facts))
    if not excess:
        return late
    (phase, detail), more = excess
    where = f"{phase_name(phase)} ({detail_name(detail)})" if detail else phase_name(phase)
    others = "rank does" if size == 2 else "ranks do"
    return f"{late} It spends {amount(more)} more than the other {others} in {where}."


def _of_unstable(facts: Facts) -> str:
    steps = facts.steps
    vary = verdict_words("unstable").sentence
    vary = f"{vary}: half take up to {amount(steps.p50)}, one in ten {amount(steps.p90)} or more"
    slow = slowest_phase(bar for one in facts.group.processes for bar in one.bars.bars)
    return f"{vary}. Slow steps lose their time in {phase_name(slow[0])}." if slow else f"{vary}."


def _of_nothing(facts: Facts, verdict: str) -> str:
    sentence = verdict_words(verdict).sentence
    if verdict == "no_scopes":
        return f"{sentence}: {_largest_phases(facts)}."
    if verdict == "marks_missing":
        return f"{sentence}: its PyTorch does not have the functions that show the phases."
    if verdict == "too_few_steps":
        count = "1 training step" if facts.group.trained == 1 else f"{facts.group.trained} training steps"
        return f"{sentence}: {count} in this time. Watch longer, with `--for`."
    if verdict == "lost_events":
        lossy = f"in {facts.group.lossy} of {facts.group.trained} training steps"
        return f"{sentence}: {lossy}. Their phases are in part unknown, and give no verdict."
    rows = sorted((row for row in facts.shares if not row.detail), key=lambda row: -row.share)[:2]
    largest_two = " and ".join(f"{phase_name(row.phase)} ({percent(row.share)})" for row in rows)
    return f"{sentence}: most of the time goes to {largest_two}."


def _largest_phases(facts: Facts) -> str:
    """The largest phases of a program without known steps."""
    rows = sorted((row for row in facts.shares if not row.detail), key=lambda row: -row.share)[:2]
    parts = []
    for row in rows:
        detail = facts.longest_detail(row.phase)
        mostly = f", mostly {detail_name(detail.detail)}" if detail else ""
        parts.append(f"{percent(row.share)} in {phase_name(row.phase)}{mostly}")
    of_thread = "the thread that calls CUDA spends" if facts.group.processes[0].source == "threads" else "it spends"
    return f"{of_thread} {'; '.join(parts)}"


def _evidence(facts: Facts, verdict: str) -> list[tuple[str, str]]:
    """The values behind the verdict, with the thresholds of `phases`."""
    shown = {name: phase_name(phase) for name, phase in PHASE_OF.items()}
    shown |= {"host_bound": detail_name("host")} if verdict == "host_bound" else {}
    values = facts.values
    rows = [(label, _with_threshold(facts, name, values[name])) for name, label in shown.items() if values[name]]
    if facts.steps.count:
        rows.append(("jitter of steps", _with_threshold(facts, "unstable", facts.steps.jitter)))
    slow = slowest_phase(bar for one in facts.group.processes for bar in one.bars.bars)
    if slow and facts.steps.p90 > _SLOW * facts.steps.p50:
        rows.append(("slowest tenth of the steps", f"their extra time is {phase_name(slow[0])}"))
    comparison = facts.comparison
    if comparison.lateness_s:
        late = comparison.latest
        lateness, transfer = comparison.lateness_s[late], comparison.transfer_s
        share, waits = (
            _with_threshold(facts, name, one / comparison.step_s)
            for name, one in (("straggler", lateness), ("slow_link", transfer))
        )
        rows.append((f"lateness of rank {late}, the latest", f"{amount(lateness)} a step: {share}"))
        rows.append(("shortest wait of any rank", f"{amount(transfer)} a step: {waits}"))
        rows += _excess(facts) if verdict == "straggler" else []
    return rows + _of_workers(facts.group.processes)


def _with_threshold(facts: Facts, verdict: str, share: float) -> str:
    threshold = facts.thresholds.get(verdict)
    return percent(share) if threshold is None else f"{percent(share)} ({verdict} from {percent(threshold)})"


def _excess(facts: Facts) -> list[tuple[str, str]]:
    found = excess_of(*straggler_and_others(facts))
    if not found:
        return []
    (phase, detail), more = found
    return [(f"more than other ranks: {detail_name(detail) or phase_name(phase)}", f"{amount(more)} a step")]


def _of_workers(processes: Sequence[SeenProcess]) -> list[tuple[str, str]]:
    count = sum(one.workers for one in processes)
    if not count:
        return []
    cpu, waiting = (sum(one.worker_times.watched(name) for one in processes) for name in ("cpu_time", "io_wait"))
    spent = f", with {amount(cpu)} of CPU time and {amount(waiting)} in I/O" if cpu or waiting else ""
    return [("DataLoader workers", f"{count}{spent}")]
