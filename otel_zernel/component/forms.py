"""Forms of data that not every component can use, so that a useless pipeline is found before it runs.

A component declares the metrics that it emits in such a form, those that it turns into another form, and those that it
cannot use. Validation follows the data through each pipeline, and warns where a component gets what it cannot use.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from otel_zernel.batch import Signal

Form = Literal["moving_bounds", "summaries", "interval_spans"]

FORMS: Final[Mapping[Form, tuple[Signal, str, str]]] = {
    "moving_bounds": (
        "metrics",
        "histograms whose bounds differ from reading to reading",
        "passes them on with moving_bounds: as_is, and only another otel-zernel adds them up rightly",
    ),
    "summaries": ("metrics", "summaries, whose quantiles cannot be combined", "cannot use them"),
    "interval_spans": (
        "traces",
        "spans of single calls, from which phases and steps are computed",
        "cannot use them",
    ),
}
"""The signal of each form, a description, and the loss in a component that refuses it."""

Names = tuple[str, ...]
"""Names of metrics or spans, as globs."""


def _nothing(_: str) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class DataForms:
    """The special forms of data that a component deals with."""

    emits: Mapping[Form, Names] = field(default_factory=dict)
    """The data that it creates in the form."""
    converts: Mapping[Form, Names] = field(default_factory=dict)
    """The data that it turns into another form, if it gets them in this one."""
    refuses: Mapping[Form, Names] = field(default_factory=dict)
    """The data that are useless to it in this form."""
    drops: Callable[[str], bool] = _nothing
    """Whether it drops a metric of this name, whatever the metric's resource and points are."""
