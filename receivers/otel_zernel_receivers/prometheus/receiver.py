"""The prometheus receiver."""

import asyncio
from collections.abc import Callable
from importlib import import_module

from otel_zernel.component import Context, Emit, Receiver
from otel_zernel_receivers.prometheus.config import PrometheusReceiverConfig, ScrapeJobConfig
from otel_zernel_receivers.prometheus.declared import FAILED_SCRAPES


class PrometheusReceiver(Receiver):
    """Scrapes the metrics pages of other programs: each target at its own times, whatever the others do."""

    Config = PrometheusReceiverConfig
    stability = "beta"
    signals = frozenset({"metrics"})
    config: PrometheusReceiverConfig

    def __init__(self, config: PrometheusReceiverConfig, context: Context) -> None:
        super().__init__(config, context)
        self._failures = context.meter.create_counter(*FAILED_SCRAPES.counter)

    async def run(self, emit: Emit) -> None:
        # Validation needs neither RE2 nor numpy nor httpx, and the event loop must not wait for them.
        await asyncio.to_thread(import_module, "otel_zernel_receivers.prometheus.scraping.job")
        from otel_zernel_receivers.prometheus.relabelling.renaming import Renames
        from otel_zernel_receivers.prometheus.scraping.fetching import PageFetcher
        from otel_zernel_receivers.prometheus.scraping.job import JobScraper
        from otel_zernel_receivers.prometheus.scraping.problems import ScrapeProblems
        from otel_zernel_receivers.prometheus.scraping.target_scraper import ScrapeServices

        problems = ScrapeProblems(self.context)
        renames = Renames(self.config.rename, self.config.presets)
        async with asyncio.TaskGroup() as group:
            for job in self.config.config.jobs:
                services = ScrapeServices(self.context, PageFetcher(job), problems, self._counter(job))
                scraper = JobScraper(
                    job,
                    services,
                    renames,
                    self.config.config.global_.external_labels,
                    trim_suffixes=self.config.trim_metric_suffixes,
                    extra_report=self.config.report_extra_scrape_metrics,
                )
                group.create_task(scraper.run(emit), name=f"{self.context.path} job {job.job_name}")

    def _counter(self, job: ScrapeJobConfig) -> Callable[[str], None]:
        return lambda reason: self._failures.add(1, {"job": job.job_name, "reason": reason})
