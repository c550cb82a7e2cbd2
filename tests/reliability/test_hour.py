"""20,000 points a second through a collector with a queue on the disk: all arrive, and the costs do not grow."""

import shutil
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from statistics import median

import pytest

from tests.reliability.steady_load import POINTS, REQUESTS, Campaign, Sample

TABLE = Path(__file__).parents[2] / "docs/soak/hour.csv"
MINUTE = 60
CPU_GROWTH, RSS_GROWTH = 1.2, 1.1
"""The most that the second half may take, as a multiple of the first. Other programs on the machine cost CPU time."""


async def test_twenty_thousand_points_a_second_all_arrive_once(
    tmp_path: Path, unused_tcp_port_factory: Callable[[], int]
) -> None:
    campaign = Campaign(tmp_path, seconds=3, every=1)
    await campaign.run(unused_tcp_port_factory())
    check_arrivals(campaign)


@pytest.mark.soak
@pytest.mark.timeout(5400)
async def test_an_hour_at_twenty_thousand_points_a_second_takes_no_more_at_its_end(
    tmp_path: Path, unused_tcp_port_factory: Callable[[], int]
) -> None:
    campaign = Campaign(tmp_path, seconds=60 * MINUTE, every=MINUTE)
    await campaign.run(unused_tcp_port_factory())
    TABLE.parent.mkdir(exist_ok=True)
    shutil.copy(campaign.table, TABLE)
    check_arrivals(campaign)
    steady = campaign.samples[1:]  # without the first minute
    middle = len(steady) // 2
    before, after = costs(steady[: middle + 1]), costs(steady[middle:])
    print(
        f"CPU seconds a minute: {before[0]:.2f}, then {after[0]:.2f}; MiB at most: {before[1]:.1f}, then {after[1]:.1f}"
    )
    assert after[0] < before[0] * CPU_GROWTH
    assert after[1] < before[1] * RSS_GROWTH


def check_arrivals(campaign: Campaign) -> None:
    end = campaign.samples[-1]
    print(f"\n{campaign.seconds} s: {end.sent} points sent, {end.received} received")
    assert end.sent == campaign.seconds * REQUESTS * POINTS
    assert end.received == end.sent
    assert set(campaign.backend.times) == {1}, "each request arrived once"


def costs(samples: list[Sample]) -> tuple[float, float]:
    """The median CPU seconds between two samples, and the largest resident memory in MiB."""
    return median(b.cpu_seconds - a.cpu_seconds for a, b in pairwise(samples)), max(one.rss_mib for one in samples)
