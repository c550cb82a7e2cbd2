"""Aggregates of any points equal those of a plain model, which adds up the same points one by one."""

import asyncio
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from otel_zernel.batch import Batch
from otel_zernel_libraries.store.config import WritableStoreConfig
from otel_zernel_libraries.store.queries.aggregation import Aggregate, aggregated, grouped
from otel_zernel_libraries.store.queries.catalogue import Catalogue
from otel_zernel_libraries.store.queries.numbers import Windows
from otel_zernel_libraries.store.queries.series import SeriesFilter
from tests.libraries.store.given import postgres_config, reader, sqlite_config, writer
from tests.libraries.store.queries.drawn import DrawnSeries, drawn_labels, drawn_series, drawn_windows, encoded
from tests.libraries.store.queries.model import QUANTILES, ModelCell, model_cells

EXAMPLES = {"sqlite": 40, "postgresql": 15}
_CALM = {"derandomize": True, "database": None, "deadline": None, "suppress_health_check": [*HealthCheck]}
Store = tuple[int, Callable[[Path], WritableStoreConfig]]
"""The number of examples, and the settings of a new store."""


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request: pytest.FixtureRequest) -> Store:
    many = EXAMPLES[request.param]
    if request.param == "sqlite":
        return many, lambda folder: sqlite_config(folder, synchronous="normal", connect_timeout="60s")
    server = request.getfixturevalue("postgres")
    return many, lambda folder: postgres_config(server)


async def answered(
    settings: WritableStoreConfig, series: list[DrawnSeries], labels: list[str], windows: Windows
) -> list[Aggregate]:
    """The aggregates of the stored series."""
    store, reading = writer(settings), reader(settings)
    try:
        await store.write(Batch(metrics=encoded(series)), 0)
        catalogue = Catalogue(reading, 1000)
        await catalogue.refresh(await reading.state(), 0.0)
        groups = grouped((await catalogue.selected(SeriesFilter())).series, labels)
        return await aggregated(reading, groups, windows, QUANTILES, 10_000)
    finally:
        await reading.close()
        await store.close()


def test_aggregates_by_any_labels_and_windows_are_those_of_the_model(store: Store) -> None:
    many, new_store = store

    async def answers(series: list[DrawnSeries], labels: list[str], windows: Windows) -> list[Aggregate]:
        with tempfile.TemporaryDirectory() as folder:
            return await answered(new_store(Path(folder)), series, labels, windows)

    @settings(
        phases=[Phase.generate],
        max_examples=many,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=[*HealthCheck],
    )
    @given(drawn_series(), drawn_labels(), drawn_windows())
    def run(series: list[DrawnSeries], labels: list[str], windows: Windows) -> None:
        found = asyncio.run(answers(series, labels, windows))
        wanted = model_cells(series, labels, windows)
        assert {(one.group.metric, one.group.labels, one.window) for one in found} == {*wanted}
        for one in found:
            begin, end = windows.span(one.window)
            check(one, wanted[one.group.metric, one.group.labels, one.window], (end - begin) / 1e9)

    run()


def check(found: Aggregate, wanted: ModelCell, seconds: float) -> None:
    kind = found.group.kind
    for name in ("count", "sum", "avg", "min", "max", "rate"):
        value, expected = found.cell.result(kind, name, seconds), wanted.result(name, seconds)
        assert (value is None) == (expected is None), (name, value, expected)
        assert value is None or value == pytest.approx(expected, rel=1e-12, abs=1e-9), name
    for quantile in QUANTILES:
        wanted.check_quantile(quantile, found.cell.result(kind, f"p{round(quantile * 100)}", seconds))
