"""Scrapes one target, again and again, at a fixed place in each interval by the wall clock."""

import asyncio
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from otel_zernel.batch import Batch
from otel_zernel.clock import Clock
from otel_zernel.component import Context, Emit, Insist
from otel_zernel.errors import Refused, Rejected
from otel_zernel_receivers.prometheus.config.scrape import ScrapeJobConfig
from otel_zernel_receivers.prometheus.discovery.targets import ScrapeTarget
from otel_zernel_receivers.prometheus.pages.formats import format_of
from otel_zernel_receivers.prometheus.pages.page import NotAPage, ScrapedPage
from otel_zernel_receivers.prometheus.pages.protobuf import ProtobufReader
from otel_zernel_receivers.prometheus.pages.text import TextReader
from otel_zernel_receivers.prometheus.points.resolving import OverLimit
from otel_zernel_receivers.prometheus.points.target_series import PageCounts, TargetSeries
from otel_zernel_receivers.prometheus.scraping.failures import ScrapeFailed
from otel_zernel_receivers.prometheus.scraping.fetching import FetchedPage, PageFetcher, uncompressed
from otel_zernel_receivers.prometheus.scraping.problems import ScrapeProblems

_TOLERANCE = 0.01
"""Points have the planned time if the scrape begins within 10 ms and 1 % of the interval. Equal distances compress
better. Prometheus does the same within 2 ms."""


class ScrapeSchedule:
    """The next scrape of one target. Scrapes that would begin in the past are left out."""

    def __init__(self, clock: Clock, interval: float, offset: float) -> None:
        """`interval` is in seconds; `offset` is a part of it, from 0 to 1."""
        self._clock = clock
        self._interval = interval
        now_ns = clock.time_ns()
        every = round(interval * 1e9)
        wait_ns = (round(offset * every) - now_ns) % every
        self._due = clock.monotonic() + wait_ns / 1e9
        self._due_ns = now_ns + wait_ns
        """The wall clock at the next scrape."""

    @property
    def wait(self) -> float:
        """Seconds until the next scrape."""
        return max(self._due - self._clock.monotonic(), 0.0)

    def begin(self) -> int:
        """The time for the points of the scrape that begins now, in ns. Plans the next one."""
        now, now_ns = self._clock.monotonic(), self._clock.time_ns()
        time_ns = self._due_ns if abs(now_ns - self._due_ns) <= self._tolerance_ns else now_ns
        steps = max(math.floor((now - self._due) / self._interval) + 1, 1)
        self._due += steps * self._interval
        planned_ns = self._due_ns + round(steps * self._interval * 1e9)
        drift_ns = planned_ns - now_ns - round((self._due - now) * 1e9)
        # After a change of the wall clock, the plan follows the clock.
        self._due_ns = planned_ns if abs(drift_ns) <= self._tolerance_ns else planned_ns - drift_ns
        return time_ns

    @property
    def _tolerance_ns(self) -> int:
        return round(min(_TOLERANCE, self._interval / 100) * 1e9)


@dataclass(frozen=True, slots=True)
class ScrapeServices:
    """The services that all targets of a job share."""

    context: Context
    fetcher: PageFetcher
    problems: ScrapeProblems
    count_failure: Callable[[str], None]
    """Counts a failed scrape by its reason."""


class TargetScraper:
    """One target: its schedule, its series and its problem."""

    def __init__(
        self, target: ScrapeTarget, job: ScrapeJobConfig, series: TargetSeries, services: ScrapeServices
    ) -> None:
        self._target = target
        self._job = job
        self._series = series
        self._services = services
        self._context = services.context
        self._text = TextReader()
        self._protobuf = ProtobufReader(
            native=job.scrape_native_histograms, classic_too=job.always_scrape_classic_histograms
        )
        self._body_size = 0
        self._in_part = f"{target.shown} in part"
        """The subject of problems with some samples."""

    async def run(self, emit: Emit) -> None:
        """Scrapes until cancelled."""
        clock = self._context.clock
        schedule = ScrapeSchedule(clock, self._target.interval, self._target.offset)
        while True:
            await clock.sleep(schedule.wait)
            await self._emit(emit, await self.scrape(schedule.begin()))

    async def scrape(self, time_ns: int) -> Batch:
        """The points of one scrape. If it fails: the ends of the series, and `up` with 0."""
        started = self._context.clock.monotonic()
        try:
            try:
                async with asyncio.timeout(self._target.timeout):
                    fetched = await self._services.fetcher.fetch(self._target)
                batch = await asyncio.to_thread(self._read, fetched, time_ns, started)
            except TimeoutError:
                raise ScrapeFailed(f"no complete answer within {self._target.timeout:g} s", "timeout") from None
            except NotAPage as error:
                raise ScrapeFailed(str(error), "page") from error
            except OverLimit as error:
                raise ScrapeFailed(str(error), "limit") from error
        except ScrapeFailed as failed:
            return self._failed(failed, time_ns, started)
        except Exception as error:
            self._context.logger.exception("The scrape of %s failed by a bug", self._target.shown)
            return self._failed(ScrapeFailed(f"{type(error).__name__}: {error}", "bug"), time_ns, started)
        self._services.problems.succeed(self._target.shown)
        return batch

    def ends(self) -> Batch:
        """The ends of all series, for a target that is gone."""
        time_ns = self._context.clock.time_ns()
        self._services.problems.forget(self._target.shown)
        self._services.problems.forget(self._in_part)
        return self._series.batch(self._series.end(time_ns), None, time_ns)

    async def emit_ends(self, emit: Emit) -> None:
        """Emits the ends."""
        await self._emit(emit, self.ends())

    def _read(self, fetched: FetchedPage, time_ns: int, started: float) -> Batch:
        """Blocks for some ms with a large page, for a second with a large new one: runs in a thread."""
        body = uncompressed(fetched, self._job.body_size_limit)
        self._body_size = len(body)
        page = self._page(body, fetched.content_type)
        if not self._job.honor_timestamps:
            page.times_ns.clear()
        points, counts = self._series.add(page, time_ns)
        self._count_losses(page, counts)
        return self._series.batch(points, self._report(counts, started, up=1), time_ns)

    def _page(self, body: bytes, content_type: str) -> ScrapedPage:
        match format_of(content_type, self._job.fallback_scrape_protocol):
            case "protobuf":
                return self._protobuf.read(body)
            case form:
                return self._text.read(body, openmetrics=form == "openmetrics", known=self._series.samples)

    def _count_losses(self, page: ScrapedPage, counts: PageCounts) -> None:
        subject = self._in_part
        if counts.malformed:
            self._context.drop(counts.malformed, "malformed sample")
            text = f"; the first is {page.problem}" if page.problem else ""
            self._services.problems.warn(
                subject, f"Skipped {counts.malformed} malformed samples of {self._target.shown}{text}"
            )
        elif counts.duplicates:
            self._context.drop(counts.duplicates, "duplicate sample")
            self._services.problems.warn(
                subject,
                f"Skipped {counts.duplicates} samples of {self._target.shown} that have the labels of another one",
            )
        else:
            self._services.problems.succeed(subject)

    def _failed(self, failed: ScrapeFailed, time_ns: int, started: float) -> Batch:
        self._services.count_failure(failed.reason)
        self._services.problems.warn(self._target.shown, f"Cannot scrape {self._target.shown}: {failed}")
        if failed.reason == "limit":
            self._body_size = -1 if "body_size_limit" in str(failed) else self._body_size
        ends = self._series.end(time_ns)
        return self._series.batch(ends, self._report(PageCounts(), started, up=0), time_ns)

    def _report(self, counts: PageCounts, started: float, *, up: int) -> Mapping[str, float]:
        return {
            "up": up,
            "scrape_duration_seconds": self._context.clock.monotonic() - started,
            "scrape_samples_scraped": counts.scraped,
            "scrape_samples_post_metric_relabeling": counts.kept,
            "scrape_series_added": counts.added,
            "scrape_timeout_seconds": self._target.timeout,
            "scrape_sample_limit": self._job.sample_limit,
            "scrape_body_size_bytes": self._body_size,
        }

    async def _emit(self, emit: Emit, batch: Batch) -> None:
        """Emits within one interval. Then the points are lost: the next scrape has newer ones."""
        count = batch.point_count
        try:
            async with asyncio.timeout(self._target.interval):
                await Insist(emit, self._context.clock)(batch)
        except (TimeoutError, Refused):
            self._context.drop(count, "refused")
            self._services.problems.warn(
                "emit", "Dropped scrapes: an exporter's queue stayed full for a whole scrape_interval"
            )
        except Rejected:
            return
        else:
            self._services.problems.succeed("emit")
