"""Rows as text, and the output of the csv receiver as plain values."""

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from otel_zernel.component import Context
from otel_zernel.testing import Downstream, Dropped, make_context
from otel_zernel_libraries.training.points import scalars_of
from otel_zernel_receivers.csv import CsvReceiver
from tests.otlp import rows_in

LAYOUT = {"timestamp": "t", "attributes": {"k": "k"}, "metric": "m", "value": "v"}
HEADER = "t,k,m,v\n"
SECOND = 10**9
START = 1_752_871_354
PlainPoint = tuple[str, int, float]
"""Metric, time in ns, value."""


@dataclass
class Run:
    """The output of one run of the receiver."""

    downstream: Downstream
    context: Context

    @property
    def dropped(self) -> dict[str, int]:
        assert isinstance(self.context.drop, Dropped)
        return dict(self.context.drop.counts)

    @property
    def points(self) -> list[PlainPoint]:
        return points_of(self.downstream)

    @property
    def values(self) -> list[float]:
        return values_of(self.downstream)


def rows(*bounds: int) -> str:
    """A row for each value in the `range` of these bounds. The time of a row in s is `START` plus its value."""
    return "".join(f"{START + value},a,x,{value}\n" for value in range(*bounds))


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def points_of(downstream: Downstream) -> list[PlainPoint]:
    """Every point, in the order of the batches."""
    rows = (row for batch in downstream.batches for row in rows_in(batch.metrics))
    return [(row.metric.name, row.point.time_unix_nano, row.value) for row in rows]


def values_of(downstream: Downstream) -> list[float]:
    return [value for _, _, value in points_of(downstream)]


def attributes(message: Any) -> dict[str, Any]:
    """The attributes of a resource or a point as plain values."""
    return scalars_of(message.attributes)


def receiver(context: Context | None = None, **config: Any) -> CsvReceiver:
    return CsvReceiver(CsvReceiver.Config.model_validate(config), context or make_context(id_="csv"))


Receive = Callable[..., Coroutine[Any, Any, Run]]
