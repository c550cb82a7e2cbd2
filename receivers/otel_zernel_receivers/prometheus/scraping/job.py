"""The targets of one job: finds them, and runs a scraper for each."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress

from otel_zernel.component import Emit
from otel_zernel_receivers.prometheus.config.scrape import ScrapeJobConfig
from otel_zernel_receivers.prometheus.discovery.sources import TargetSource, sources_of
from otel_zernel_receivers.prometheus.discovery.targets import ScrapeTarget, TargetRules
from otel_zernel_receivers.prometheus.points.resolving import SampleRules
from otel_zernel_receivers.prometheus.points.target_series import TargetSeries
from otel_zernel_receivers.prometheus.relabelling.renaming import Renames
from otel_zernel_receivers.prometheus.relabelling.rules import relabel_rules
from otel_zernel_receivers.prometheus.scraping.failures import ScrapeFailed
from otel_zernel_receivers.prometheus.scraping.target_scraper import ScrapeServices, TargetScraper


class JobScraper:
    """Keeps a scraper for each target of a job. A target that stays keeps its scraper."""

    def __init__(
        self,
        job: ScrapeJobConfig,
        services: ScrapeServices,
        renames: Renames,
        external_labels: Mapping[str, str],
        *,
        trim_suffixes: bool = False,
        extra_report: bool = False,
    ) -> None:
        self._job = job
        self._services = services
        self._renames = renames
        self._trim_suffixes = trim_suffixes
        self._extra_report = extra_report
        self._metric_rules = relabel_rules(job.metric_relabel_configs)
        self._target_rules = TargetRules(job, relabel_rules(job.relabel_configs), external_labels)
        self._running: dict[ScrapeTarget, tuple[TargetScraper, asyncio.Task[None]]] = {}

    async def run(self, emit: Emit) -> None:
        """Runs until cancelled."""
        clock, sources = self._services.context.clock, sources_of(self._job)
        try:
            with suppress(ScrapeFailed):  # the scrapes report it
                await self._services.fetcher.prepare()
            async with asyncio.TaskGroup() as group:  # a scraper that crashes ends the receiver, which is restarted
                while True:
                    targets, problems = await self._find(sources, clock.monotonic())
                    self._show(problems)
                    await self._synchronise(targets, emit, group)
                    await clock.sleep(min((source.interval for source in sources), default=3600.0))
        finally:
            self._running.clear()
            await self._services.fetcher.close()

    async def _find(self, sources: Sequence[TargetSource], now: float) -> tuple[list[ScrapeTarget], list[str]]:
        discovered = [labels for source in sources for labels in await source.targets(now)]
        targets, problems = self._target_rules.targets(discovered)
        name = self._job.job_name
        return targets, [*problems, *(f"job {name}: {problem}" for source in sources for problem in source.problems)]

    def _show(self, problems: Sequence[str]) -> None:
        subject = f"the targets of job {self._job.job_name}"
        if problems:
            more = f" (and {len(problems) - 1} more problems)" if len(problems) > 1 else ""
            self._services.problems.warn(subject, f"Cannot use all targets: {problems[0]}{more}")
        else:
            self._services.problems.succeed(subject)

    async def _synchronise(self, targets: Sequence[ScrapeTarget], emit: Emit, group: asyncio.TaskGroup) -> None:
        gone = self._running.keys() - {*targets}
        ended = {target: self._running.pop(target) for target in gone}
        for _, task in ended.values():
            task.cancel()
        await asyncio.gather(*(task for _, task in ended.values()), return_exceptions=True)
        for target in targets:
            if target not in self._running:
                scraper = self._scraper(target)
                task = group.create_task(scraper.run(emit), name=f"scrape {target.shown}")
                self._running[target] = scraper, task
        for scraper, _ in ended.values():
            await scraper.emit_ends(emit)

    def _scraper(self, target: ScrapeTarget) -> TargetScraper:
        job = self._job
        rules = SampleRules(
            dict(target.labels), self._renames, job, self._metric_rules, job.honor_labels, self._trim_suffixes
        )
        series = TargetSeries(
            rules, target.about, extra_report=self._extra_report, track_timed=job.track_timestamps_staleness
        )
        return TargetScraper(target, job, series, self._services)
