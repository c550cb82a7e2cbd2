"""Scrapes with the host receiver, and reads the points."""

import atexit
import shutil
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from otel_zernel.batch import Batch
from otel_zernel.clock import Clock
from otel_zernel.component import PartialScrape
from otel_zernel.testing import FakeClock, make_context
from otel_zernel_libraries.training.points import scalars_of
from otel_zernel_receivers.host import HostReceiver
from otel_zernel_receivers.host.config import ScrapersConfig
from otel_zernel_receivers.host.metrics import of_scraper
from tests.otlp import rows_in


def _recorded_machine() -> Path:
    """The files in `recorded`, with the link that the kernel shows for the program of process 812.

    The checkout has no such link: pip refuses a source distribution with a link to an absolute path.
    """
    folder = TemporaryDirectory()
    atexit.register(folder.cleanup)
    root = shutil.copytree(Path(__file__).parent / "recorded", Path(folder.name) / "recorded")
    (root / "proc/812/exe").symlink_to("/opt/conda/bin/python3.11")
    return root


RECORDED = _recorded_machine()
EVERY = tuple(ScrapersConfig.model_fields)
Points = dict[tuple[Any, ...], float | None]
"""Values by metric and the values of the attributes, in order. None is a staleness point."""


def receiver(
    scrapers: Mapping[str, Any] | None, root: Path | None = RECORDED, clock: Clock | None = None
) -> HostReceiver:
    fields: dict[str, Any] = {"root_path": str(root) if root else ""}
    if scrapers is not None:
        fields["scrapers"] = scrapers
    return HostReceiver(HostReceiver.Config.model_validate(fields), make_context(clock=clock or FakeClock()))


def scraped(receiver: HostReceiver) -> tuple[Batch, list[str]]:
    """The batch, and the problems that the scrape reports."""
    try:
        return receiver.scrape(), []
    except PartialScrape as partial:
        return partial.batch, [str(partial)] * partial.errors


def by_series(batch: Batch, *, pid: int | None = None) -> Points:
    """The points of the machine, or of a process."""
    return {row.key: row.value for row in rows_in(batch.metrics) if row.resource.get("process.pid") == pid}


def resources(batch: Batch) -> list[dict[str, Any]]:
    """The attributes of each resource."""
    return [scalars_of(resource.resource.attributes) for resource in batch.metrics.resource_metrics]


def all_metrics(scraper: str) -> dict[str, Any]:
    """The configuration that enables every metric of a scraper."""
    return {"metrics": {name: {"enabled": True} for name in of_scraper(scraper)}}
