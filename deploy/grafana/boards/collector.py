"""The collectors themselves: their data, their losses, their queues and their cost."""

from deploy.grafana.panels import Dashboard, Panel, Query, Row, Variable

_CHOSEN = 'instance=~"$instance"'
_INTERVAL = "[$__rate_interval]"
_ITEMS = (("metric_points", "points"), ("spans", "spans"), ("log_records", "log records"))


def _items(prefix: str, by: str) -> Query:
    """Items per second of the three signals. One query, as most signals of most instances have no series."""
    rates = {name: f"sum by (instance, {by}) (rate({prefix}_{noun}{{{_CHOSEN}}}{_INTERVAL}))" for noun, name in _ITEMS}
    parts = [f'label_replace({rate}, "items", "{name}", "", "")' for name, rate in rates.items()]
    return Query(" or ".join(parts), f"{{{{instance}}}} {{{{{by}}}}} {{{{items}}}}")


def _rate(metric: str, by: str) -> Query:
    query = f"sum by (instance, {by}) (rate({metric}{{{_CHOSEN}}}{_INTERVAL}))"
    return Query(query, "{{instance}} " + " ".join(f"{{{{{label}}}}}" for label in by.split(", ")))


def _gauge(metric: str, by: str = "") -> Query:
    labels = f"instance, {by}" if by else "instance"
    return Query(f"max by ({labels}) ({metric}{{{_CHOSEN}}})", "{{instance}}" + (f" {{{{{by}}}}}" if by else ""))


def _event(title: str, query: Query, description: str = "") -> Panel:
    """A panel of a counter that appears with its first event."""
    return Panel(title, "ops", [query], description, no_value="0")


_FLOW = Row(
    "Data",
    [
        Panel("Received", "ops", [_items("otelcol_receiver_accepted", "receiver")], "Items per second."),
        Panel("Scraped", "ops", [_rate("otelcol_scraper_scraped_metric_points", "receiver")], "Points per second."),
        Panel("Sent", "ops", [_items("otelcol_exporter_sent", "exporter")], "Items per second."),
        Panel("Into processors", "ops", [_rate("otelcol_processor_incoming_items", "pipeline, processor")]),
        Panel("Out of processors", "ops", [_rate("otelcol_processor_outgoing_items", "pipeline, processor")]),
    ],
)
_LOSSES = Row(
    "Losses and refusals",
    [
        _event(
            "Dropped",
            _rate("zernel_dropped_items", "component, reason"),
            "Every loss, with its reason: docs/delivery.md lists them.",
        ),
        _event(
            "Given up by exporters",
            _items("otelcol_exporter_send_failed", "exporter"),
            "The backend refused the data, or did not answer for too long.",
        ),
        _event("Not taken by queues", _items("otelcol_exporter_enqueue_failed", "exporter"), "The queue was full."),
        _event(
            "Refused by pipelines",
            _items("otelcol_receiver_refused", "receiver"),
            "Nothing is lost yet: the source still has the data.",
        ),
        _event("Failed reads of scrapers", _rate("otelcol_scraper_errored_metric_points", "receiver")),
        _event("Crashes of receivers", _rate("zernel_receiver_restarts", "receiver")),
    ],
)
_QUEUES = Row(
    "Queues",
    [
        Panel(
            "Fill",
            "percentunit",
            [
                Query(
                    f"max by (instance, exporter) (otelcol_exporter_queue_size{{{_CHOSEN}}}"
                    f" / otelcol_exporter_queue_capacity{{{_CHOSEN}}})",
                    "{{instance}} {{exporter}}",
                )
            ],
        ),
        Panel(
            "Age of the oldest batch",
            "s",
            [_gauge("zernel_exporter_queue_oldest_age", "exporter")],
            "How far the backend is behind.",
        ),
        Panel("Memory", "bytes", [_gauge("zernel_exporter_queue_bytes", "exporter")]),
    ],
)
_COST = Row(
    "Cost",
    [
        Panel("Resident memory", "bytes", [_gauge("otelcol_process_memory_rss")]),
        Panel(
            "CPU",
            "percentunit",
            [Query(f"sum by (instance) (rate(otelcol_process_cpu_seconds{{{_CHOSEN}}}{_INTERVAL}))", "{{instance}}")],
            "Share of one CPU.",
        ),
        Panel("Uptime", "s", [_gauge("otelcol_process_uptime")]),
    ],
)
_EBPF = Row(
    "eBPF and NVML, of all collectors",
    [
        Panel(
            "Time of probes",
            "percentunit",
            [
                Query(
                    f"sum by (host_name, process_pid) (rate(zernel_probe_time_seconds_total{_INTERVAL}))",
                    "{{host_name}} {{process_pid}}",
                )
            ],
            "Share of one CPU that the probes take of each process.",
        ),
        Panel(
            "Share of time with probes on",
            "percentunit",
            [
                Query(
                    "min by (host_name, zernel_probe_name) (zernel_probe_sampled_ratio)",
                    "{{host_name}} {{zernel_probe_name}}",
                )
            ],
            "Below 1, calls are sampled because of max_overhead.",
        ),
        Panel(
            "Lost events",
            "ops",
            [Query(f"sum by (host_name) (rate(zernel_ebpf_lost_events_total{_INTERVAL}))", "{{host_name}}")],
            "Data of ebpf is incomplete above 0.",
            no_value="0",
        ),
        Panel(
            "Skipped processes and files",
            "short",
            [
                Query(
                    "max by (host_name, error_type) (zernel_ebpf_left_out)",
                    "{{host_name}} {{error_type}}",
                )
            ],
            "Of the last scan. Mostly for lack of a capability: see otel-zernel doctor.",
        ),
        _event("Time-outs of NVML", _rate("zernel_nvml_timeouts", "hw_id"), "A GPU that does not answer may hang."),
        _event("Failed queries of NVML", _rate("zernel_nvml_query_errors", "zernel_nvml_query, error_type")),
    ],
)
COLLECTOR = Dashboard(
    "otel-zernel-collector",
    "otel-zernel / Collectors",
    "The collectors: data, losses, queues and cost.",
    [Variable("instance", "Collector", "otelcol_process_uptime", "instance", several=True)],
    [_FLOW, _LOSSES, _QUEUES, _COST, _EBPF],
)
