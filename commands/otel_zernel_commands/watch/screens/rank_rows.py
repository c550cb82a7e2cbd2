"""The ranks of a state: which ones are shown, and in which order."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from otel_zernel_commands.watch.reading import number, objects, rows, table, text
from otel_zernel_commands.watch.screens.phase_bars import recent_ratios
from otel_zernel_commands.watch.screens.watch_view import WatchView
from otel_zernel_libraries.training.names import PHASES
from otel_zernel_libraries.training.words import phase_name, verdict_words

_SILENT_MS = 10_000
"""Without data for longer than the other ranks, a rank is drawn dimmed."""


@dataclass(frozen=True, slots=True)
class RankFields:
    """A rank as the screens read it."""

    id: str
    fields: Mapping[str, Any]
    gpu: Mapping[str, Any]
    ratios: list[float]
    """The parts of the five phases in its last steps."""
    is_silent: bool

    @property
    def end(self) -> str:
        """How it ended, such as `exit 1` or `SIGKILL`; empty while it runs."""
        if "ended" not in self.fields:
            return ""
        code = number(self.fields, "ended", "code")
        return text(self.fields, "ended", "signal") or (f"exit {code:.0f}" if code is not None else "ended")

    @property
    def phase(self) -> str:
        """Its phase now, if it is one of the five; else empty."""
        phase = text(self.fields, "phase")
        return phase if phase in PHASES else ""

    @property
    def verdict(self) -> str:
        """The name of its verdict; empty if there is none."""
        name = text(self.fields, "verdict", "name")
        return "" if name == "none" else name

    def wait(self, quantile: str) -> float | None:
        """The largest quantile of its collectives."""
        numbers = (number(collective, quantile) for collective in table(self.fields, "collectives").values())
        return max((value for value in numbers if value is not None), default=None)

    def value(self, key: str) -> float | None:
        """The value to sort by; None if it is not known. `rank` has two: `RankFields.order` has them."""
        match key:
            case "phase":
                return float(PHASES.index(self.phase)) if self.phase else None
            case "p50" | "p99":
                return number(self.fields, "step", key)
            case "late":
                return number(self.fields, "lateness")
            case "rate":
                return number(self.fields, "step_rate")
            case "data":
                return number(self.fields, "shares", "data_loading")
        return number(self.fields, "shares", "nccl_collective")

    @property
    def order(self) -> tuple[str, float, str, float]:
        """The order of ranks: by job, number, host and pid."""
        rank = number(self.fields, "rank")
        pid = number(self.fields, "pid")
        return (
            text(self.fields, "job"),
            -1.0 if rank is None else rank,
            text(self.fields, "host"),
            -1.0 if pid is None else pid,
        )

    def matches(self, words: list[str]) -> bool:
        """Whether each word is in one of its texts."""
        rank, pid = number(self.fields, "rank"), number(self.fields, "pid")
        parts = [
            self.id,
            text(self.fields, "job"),
            text(self.fields, "program"),
            text(self.fields, "executable"),
            phase_name(self.phase),
            self.phase,
            verdict_words(self.verdict).name,
            self.verdict,
            self.end,
            f"rank{rank:.0f}" if rank is not None else "",
            f"pid{pid:.0f}" if pid is not None else "",
        ]
        return all(word in " ".join(parts).casefold() for word in words)


def shown_ranks(state: Mapping[str, Any], view: WatchView) -> list[RankFields]:
    """The ranks that match the filter, in the chosen order."""
    ranks, gpus, timeline = objects(state, "ranks"), objects(state, "gpus"), table(state, "timeline")
    newest = max((number(rank, "seen") or 0.0 for rank in ranks.values()), default=0.0)
    words = view.filter.casefold().split()
    rows_of_ranks = [
        RankFields(
            id_,
            fields,
            gpus.get(text(fields, "gpu"), {}),
            recent_ratios(fields, rows(timeline, id_)),
            newest - (number(fields, "seen") or newest) > _SILENT_MS,
        )
        for id_, fields in ranks.items()
    ]
    return _sorted([row for row in rows_of_ranks if row.matches(words)] if words else rows_of_ranks, view)


def _sorted(ranks: list[RankFields], view: WatchView) -> list[RankFields]:
    """By the second key, and then, as Python's sort is stable, by the first. Unknown values come last."""
    ranks.sort(key=lambda rank: rank.order)
    for order in reversed(view.orders):
        if order.key == "rank":
            if order.is_reversed or order is view.orders[0]:
                ranks.sort(key=lambda rank: rank.order, reverse=order.is_reversed)
            continue
        sign = -1.0 if order.is_descending else 1.0
        ranks.sort(
            key=lambda rank, key=order.key, sign=sign: (  # type: ignore[misc]  # bound now
                (value := rank.value(key)) is None,
                sign * (value or 0.0),
            )
        )
    return ranks
