"""Pages and aggregates of any numbers equal those that Python computes from the same points."""

import asyncio
import math
import statistics
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from otel_zernel_libraries.store.config import WritableStoreConfig
from tests.extensions.query.serving import BEGIN, SECOND, Served, counter, gauge, serving
from tests.libraries.store.given import new_stores

END = 60
STEP = 20
WHOLE = f"start_time={BEGIN // SECOND}&end_time={BEGIN // SECOND + END}"
SECONDS = st.integers(0, END - 1)
VALUES = st.floats(-1e6, 1e6) | st.sampled_from([0.0, 0.1, math.nan])
SERIES = st.dictionaries(
    st.tuples(st.sampled_from(["a", "b", "x'; --"]), st.sampled_from(["m", "n"]), st.sampled_from(["0", "1"])),
    st.dictionaries(SECONDS, VALUES, min_size=1, max_size=12),
    min_size=1,
    max_size=6,
)
EXAMPLES = {"sqlite": 25, "postgresql": 8}
Given = dict[tuple[str, str, str], dict[int, float]]
"""Values by second, by host, metric and GPU."""
Examples = tuple[int, Callable[[Path], WritableStoreConfig]]
"""The number of examples, and the settings of a new store."""


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request: pytest.FixtureRequest) -> Examples:
    return EXAMPLES[request.param], new_stores(request)


async def write(served: Served, given_: Given) -> None:
    for (host, metric, gpu), points in given_.items():
        for second, value in points.items():
            one = gauge(metric, [value], hw_id=gpu)
            one.gauge.data_points[0].time_unix_nano = BEGIN + second * SECOND
            await served.write(one, host_name=host)


def check(store: Examples, compare: Callable[[Served, Given], Any]) -> None:
    """Compares the answers about many stores."""
    many, new_store = store

    async def one(given_: Given) -> None:
        with tempfile.TemporaryDirectory() as folder:
            async with serving(new_store(Path(folder))) as served:
                await write(served, given_)
                await compare(served, given_)

    @settings(max_examples=many, derandomize=True, database=None, deadline=None, suppress_health_check=[*HealthCheck])
    @given(SERIES)
    def run(given_: Given) -> None:
        asyncio.run(one(given_))

    run()


def test_pages_in_any_order_have_each_point_once(
    store: Examples,
) -> None:
    async def compare(served: Served, given_: Given) -> None:
        wanted = Counter(
            (host, metric, gpu, time_of(second), shown(value))
            for (host, metric, gpu), points in given_.items()
            for second, value in points.items()
        )
        for sort in ("time", "-time", "series"):
            found = await by_cursor(served, f"/telemetry?sort={sort}&page_size=5")
            assert (
                Counter(
                    (one["host_id"], one["metric"], one["uuid"], one["timestamp"][:19], shown(one["value"]))
                    for one in found
                )
                == wanted
            )
            times = [one["timestamp"] for one in found]
            assert sort == "series" or times == sorted(times, reverse=sort == "-time")

    check(store, compare)


def test_aggregates_are_those_of_all_points_of_a_group_and_a_window(
    store: Examples,
) -> None:
    async def compare(served: Served, given_: Given) -> None:
        wanted: dict[tuple[str, str, str], list[float]] = {}
        for (host, metric, _), points in given_.items():
            for second, value in points.items():
                if not math.isnan(value):
                    start = time_of(second // STEP * STEP)
                    wanted.setdefault((host, metric, start), []).append(value)
        data = await served.data(f"/telemetry/aggregations?group_by=host_id&step={STEP}s&{WHOLE}")
        assert {(one["group"]["host_id"], one["metric"], one["start"][:19]) for one in data} == {*wanted}
        for one in data:
            values = wanted[one["group"]["host_id"], one["metric"], one["start"][:19]]
            assert (one["count"], one["min"], one["max"]) == (len(values), min(values), max(values))
            assert one["sum"] == pytest.approx(math.fsum(values), abs=1e-6)
            assert one["avg"] == pytest.approx(statistics.fmean(values), abs=1e-6)
            for share in (50, 90, 99):
                assert one[f"p{share}"] == pytest.approx(quantile(values, share / 100), abs=1e-6)

    check(store, compare)


@pytest.mark.parametrize(
    ("value", "total"), [(1e308, "Infinity"), (-1e308, "-Infinity"), (2**63 - 1, 3.0 * (2**63 - 1))]
)
async def test_sums_beyond_the_largest_number_are_answered(served: Served, value: float, total: float | str) -> None:
    if isinstance(value, int):
        await served.write(counter("big", [value, value], temporality=1), counter("total", [1, value, value]))
    await served.write(gauge("big", [value, value, value]), host_name="a")
    data = await served.data(f"/telemetry/aggregations?{WHOLE}")
    assert {one["metric"] for one in data} >= {"big"}
    whole = next(one for one in data if one["type"] == "gauge")
    assert whole["sum"] == total
    assert whole["max"] == float(value)


def time_of(second: int) -> str:
    return f"2023-11-14T22:{13 + (20 + second) // 60:02}:{(20 + second) % 60:02}"


def shown(value: Any) -> str:
    return "NaN" if value == "NaN" or math.isnan(value) else repr(float(value))


async def by_cursor(served: Served, path: str) -> list[dict[str, Any]]:
    """All points of a query, page by page."""
    found: list[dict[str, Any]] = []
    page = (await served.get(path)).json
    found += page["data"]
    while page["has_more"]:
        page = (await served.get(f"{path}&cursor={page['next_cursor']}")).json
        found += page["data"]
    return found


def quantile(values: list[float], share: float) -> float:
    """Linear between two values."""
    ordered, place = sorted(values), share * (len(values) - 1)
    low = math.floor(place)
    return ordered[low] + (place - low) * (ordered[min(low + 1, len(ordered) - 1)] - ordered[low])
