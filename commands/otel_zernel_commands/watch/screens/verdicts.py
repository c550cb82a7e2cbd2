"""The verdicts as sentences, the worst first."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from otel_zernel_commands.watch.reading import number, objects, rows, table, text
from otel_zernel_commands.watch.screens import amounts
from otel_zernel_libraries.training.verdicts import PHASE_OF
from otel_zernel_libraries.training.words import DELAYS, mark_names, verdict_words


def verdict_sentences(state: Mapping[str, Any]) -> list[tuple[str, bool]]:
    """Sentences on a job, and whether each names a fault. At least one, if it has ranks."""
    ranks = objects(state, "ranks")
    jobs = objects(state, "jobs")
    sentences = [sentence for job in jobs.values() for sentence in _of_job(job, ranks)]
    of_jobs = {id_ for job in jobs.values() for id_ in rows(job, "ranks") if isinstance(id_, str)}
    alone = [rank for id_, rank in ranks.items() if id_ not in of_jobs]
    sentences += _of_ranks(alone)
    if ranks and not sentences:
        sentences = [(f"{verdict_words('none').sentence}.", False)]
    return sorted(sentences, key=lambda sentence: not sentence[1])


def _of_job(job: Mapping[str, Any], ranks: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, bool]]:
    if hung := text(job, "hung", "sentence"):
        yield hung, True
        return
    if lead := text(job, "answer", "sentence"):
        yield lead, bool(rows(job, "answer", "advice"))
        return
    name, evidence = text(job, "verdict", "name"), table(job, "verdict", "evidence")
    step = amounts.seconds(number(job, "step_time"))
    if name == "straggler":
        late = [rank_name(ranks.get(rank, {}), rank) for rank in rows(job, "verdict", "ranks") if isinstance(rank, str)]
        lateness = amounts.seconds(number(evidence, "lateness"))
        named = ", ".join(late[:4]) or "a rank"
        if named.startswith(("a rank", "rank ", "pid ")):  # and no id
            named = named[0].upper() + named[1:]
        yield f"{DELAYS[len(late) > 1].format(named)} by {lateness} of a {step} step.", True
        return
    if name == "slow_link":
        transfer = amounts.seconds(number(evidence, "transfer"))
        yield f"{verdict_words(name).sentence}, {transfer} of a {step} step.", True
        return
    members = [ranks[rank] for rank in rows(job, "ranks") if isinstance(rank, str) and rank in ranks]
    yield from _of_ranks(members)


def _of_ranks(ranks: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, bool]]:
    """The most frequent verdict of the ranks."""
    names = Counter(name for rank in ranks if (name := text(rank, "verdict", "name")) and name != "none")
    if not names:
        return
    name, times = names.most_common(1)[0]
    words = verdict_words(name)
    those = [rank for rank in ranks if text(rank, "verdict", "name") == name]
    who = f" ({times} of {len(ranks)} processes)" if len(ranks) > 1 else ""
    yield f"{words.sentence}{who}{_because(name, those)}.", words.is_fault


def _because(name: str, ranks: Sequence[Mapping[str, Any]]) -> str:
    if name == "unstable":
        return f": jitter {amounts.percent(_mean(ranks, 'verdict', 'evidence', 'jitter'))}"
    if name == "marks_missing":
        missing = {str(mark) for rank in ranks for mark in rows(rank, "verdict", "evidence", "missing")}
        return f": PyTorch does not show {mark_names(missing)}" if missing else ""
    phase = PHASE_OF.get(name)
    share = _mean(ranks, "verdict", "evidence", phase) if phase else None
    if phase and share is not None:
        return f": {amounts.percent(share)} of the time"
    return ""


def _mean(ranks: Sequence[Mapping[str, Any]], *path: str) -> float | None:
    known = [value for rank in ranks if (value := number(rank, *path)) is not None]
    return sum(known) / len(known) if known else None


def rank_name(rank: Mapping[str, Any], id_: str) -> str:
    """`rank 3`; without a rank `pid 4711`; else the id."""
    number_, pid = number(rank, "rank"), number(rank, "pid")
    if number_ is not None:
        return f"rank {number_:.0f}"
    return f"pid {pid:.0f}" if pid is not None else id_
