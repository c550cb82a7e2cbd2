"""Dashboards as data: rows of panels with their queries. `rendering` makes Grafana's JSON of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from otel_zernel_libraries.training.words import VERDICT_WORDS

PanelKind = Literal["timeseries", "stat", "table", "traces"]


@dataclass(frozen=True)
class Query:
    """A query in PromQL, or in TraceQL if its panel has the kind `traces`."""

    expression: str
    legend: str = ""
    """The name of a series, with its labels in double braces. Empty: all labels."""
    histograms: Literal["classic", "native"] | None = None
    """The kind of histogram that it reads. The panel then has another query for the other kind: VictoriaMetrics refuses
    the functions for native histograms, with everything else in the same query."""


@dataclass(frozen=True)
class Panel:
    """A panel: its title, the unit of its values and its queries."""

    title: str
    unit: str
    """Grafana's id of a unit: s, percentunit (0 to 1), bytes, Bps, watt, celsius, hertz, ops, short."""
    queries: Sequence[Query]
    description: str = ""
    kind: PanelKind = "timeseries"
    width: int = 8
    """In columns. A dashboard has 24."""
    stacked: bool = False
    exemplars: bool = False
    """Whether points with a trace are shown. A click opens the trace."""
    no_value: str = ""
    """The text of a panel without data: 0 for counters that appear with their first event."""


@dataclass(frozen=True)
class Row:
    """Panels under a heading."""

    title: str
    panels: Sequence[Panel]


@dataclass(frozen=True)
class Variable:
    """A choice at the top of a dashboard: the values of a label."""

    name: str
    title: str
    metric: str
    """The metric, with a selector that may contain earlier variables."""
    label: str
    several: bool = False
    """Whether several values, or all of them, can be chosen."""


@dataclass(frozen=True)
class Dashboard:
    """A dashboard. Its `uid` is its address in Grafana and the name of its file."""

    uid: str
    title: str
    description: str
    variables: Sequence[Variable]
    rows: Sequence[Row]


def meaning_of(*verdicts: str) -> str:
    """The names of verdicts, with their sentences."""
    return " ".join(
        f"{(words := VERDICT_WORDS[verdict]).name.capitalize()}: {words.sentence.lower()}." for verdict in verdicts
    )


def by_quantile(metric: str, selector: str, by: str, *quantiles: float, legend: str = "") -> list[Query]:
    """Quantiles of a histogram by some labels, from classic buckets, or else from native histograms.

    A server has the one or the other, or both. The classic ones count if it has both.
    """
    classic = f"sum by (le, {by}) (rate({metric}_bucket{{{selector}}}[$__rate_interval]))"
    native = f"sum by ({by}) (rate({metric}{{{selector}}}[$__rate_interval]))"
    return [
        Query(
            f"histogram_quantile({quantile}, {classic}) or histogram_quantile({quantile}, {native})",
            f"p{quantile * 100:g} {legend}".strip(),
        )
        for quantile in quantiles
    ]
