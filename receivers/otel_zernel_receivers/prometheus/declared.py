"""The metrics of the receiver: its report on each scrape, and one about itself."""

from otel_zernel.component.declaration import DeclaredMetric, by_name, own

FAILED_SCRAPES = own(
    "zernel.prometheus.failed_scrapes",
    "{scrape}",
    "Scrapes that brought nothing, by job and reason.",
    ("job", "reason"),
    "from the first such scrape on",
)
REPORTED = by_name(
    DeclaredMetric("up", "", "gauge", "1 if the last scrape of the target succeeded, else 0."),
    DeclaredMetric("scrape_duration_seconds", "s", "gauge", "Duration of the scrape."),
    DeclaredMetric("scrape_samples_scraped", "", "gauge", "Samples on the page."),
    DeclaredMetric("scrape_samples_post_metric_relabeling", "", "gauge", "Samples that relabelling kept."),
    DeclaredMetric("scrape_series_added", "", "gauge", "Series that were not on the page before."),
)
_IF_EXTRA = "with report_extra_scrape_metrics"
EXTRA = by_name(
    DeclaredMetric("scrape_timeout_seconds", "s", "gauge", "The configured scrape_timeout.", when=_IF_EXTRA),
    DeclaredMetric(
        "scrape_sample_limit", "", "gauge", "The configured sample_limit; 0 without a limit.", when=_IF_EXTRA
    ),
    DeclaredMetric(
        "scrape_body_size_bytes",
        "By",
        "gauge",
        "Size of the page, uncompressed; -1 beyond body_size_limit.",
        when=_IF_EXTRA,
    ),
)
METRICS = {**by_name(FAILED_SCRAPES), **REPORTED, **EXTRA}
