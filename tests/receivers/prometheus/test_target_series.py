"""From pages to OTLP: kinds of points, start times, ends, labels, limits and new names.

The start times of cumulative series, and the ends of all series.
"""

import math
from typing import Any

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality

from otel_zernel_receivers.prometheus.pages.page import NativeHistogram, PageFamily, ScrapedPage
from otel_zernel_receivers.prometheus.points.resolving import OverLimit
from tests.otlp import metrics_in
from tests.receivers.prometheus.parts import REPORT, SECOND, TextTarget
from tests.receivers.prometheus.serving import ended, metrics_of, series_of

PAGE = """\
# HELP requests Requests so far.
# TYPE requests counter
# UNIT requests seconds
requests_seconds_total{code="200"} 5
# TYPE wait histogram
wait_bucket{le="0.5"} 2
wait_bucket{le="1"} 3
wait_bucket{le="+Inf"} 6
wait_sum 4.5
wait_count 6
# TYPE size summary
size{quantile="0.5"} 2
size_sum 30
size_count 4
# TYPE build info
build_info{version="1"} 1
# TYPE state stateset
state{state="on"} 1
state{state="off"} 0
"""


def test_every_type_becomes_its_kind_of_point() -> None:
    metrics = metrics_of(TextTarget().scrape(PAGE.replace("requests ", "requests_seconds "), openmetrics=True))
    counter = metrics["requests_seconds_total"]
    assert (counter.description, counter.unit) == ("Requests so far.", "s")
    assert counter.sum.is_monotonic
    assert counter.sum.aggregation_temporality == AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
    assert counter.sum.data_points[0].as_double == 5
    (wait,) = metrics["wait"].histogram.data_points
    assert (wait.count, wait.sum, [*wait.bucket_counts], [*wait.explicit_bounds]) == (6, 4.5, [2, 1, 3], [0.5, 1])
    (size,) = metrics["size"].summary.data_points
    assert (size.count, size.sum, size.quantile_values[0].quantile, size.quantile_values[0].value) == (4, 30, 0.5, 2)
    for name in ("build_info", "state"):
        assert not metrics[name].sum.is_monotonic
        assert metrics[name].sum.data_points
    types = {name: metric.metadata[0].value.string_value for name, metric in metrics.items()}
    assert types["requests_seconds_total"] == "counter"
    assert types["state"] == "stateset"


def test_samples_of_no_known_type_are_gauges() -> None:
    metrics = metrics_of(TextTarget().scrape("a 1\nwait_bucket 2\n# TYPE h histogram\nh 3\nh_bucket 4\n"))
    assert {name for name, metric in metrics.items() if metric.WhichOneof("data") == "gauge"} >= {
        "a",
        "wait_bucket",
        "h",
        "h_bucket",
    }


@pytest.mark.parametrize("page", ['h_bucket{le="1"} 3\nh_bucket{le="+Inf"} 2\n', 'h_bucket{le="1"} NaN\nh_count 3\n'])
def test_a_histogram_that_makes_no_sense_is_left_out_and_counted(page: str) -> None:
    target = TextTarget()
    batch = target.scrape(f"# TYPE h histogram\n{page}# TYPE g gauge\ng 1\n")
    assert "h" not in metrics_of(batch)
    assert target.counts.malformed == 1
    assert batch.point_count == 1 + len(REPORT)


def test_a_histogram_without_infinite_bucket_or_count_uses_the_other() -> None:
    text = '# TYPE h histogram\nh_bucket{a="1",le="1"} 3\nh_count{a="1"} 5\nh_bucket{a="2",le="+Inf"} 7\n'
    points = metrics_of(TextTarget().scrape(text))["h"].histogram.data_points
    assert [([*point.bucket_counts], point.count, point.HasField("sum")) for point in points] == [
        ([3, 2], 5, False),
        ([7], 7, False),
    ]


@pytest.mark.parametrize("honor", [False, True])
def test_conflicting_labels_are_honoured_or_renamed(honor: bool) -> None:
    target = TextTarget({"zone": "z"}, honor_labels=honor)
    batch = target.scrape('a{job="own",zone="y",exported_zone="x"} 1\n')
    ((_, labels),) = [key for key in series_of(batch) if key[0] == "a"]
    if honor:
        assert dict(labels) == {"job": "own", "instance": "host:1", "zone": "y", "exported_zone": "x"}
    else:
        expected = {"job": "test", "instance": "host:1", "zone": "z", "exported_job": "own"}
        assert dict(labels) == expected | {"exported_zone": "x", "exported_exported_zone": "y"}


def test_target_info_and_scope_labels_are_resource_and_scope() -> None:
    batch = TextTarget().scrape(
        'target_info{os="linux"} 1\na{otel_scope_name="lib",otel_scope_version="2",otel_scope_x="y",k="v"} 1\n'
    )
    resource, *_ = [
        resource_metric
        for resource_metric in batch.metrics.resource_metrics
        if resource_metric.scope_metrics[0].scope.name == "lib"
    ]
    about = {pair.key: pair.value.string_value for pair in resource.resource.attributes}
    assert about == {"service.name": "test", "service.instance.id": "host:1", "os": "linux"}
    scope = resource.scope_metrics[0].scope
    assert (scope.version, scope.attributes[0].key) == ("2", "x")
    assert [pair.key for pair in resource.scope_metrics[0].metrics[0].gauge.data_points[0].attributes] == ["k"]
    assert "target_info" not in metrics_of(batch)


def test_metric_relabelling_drops_and_renames_samples() -> None:
    rules = [
        {"source_labels": ["__name__"], "regex": "go_.*", "action": "drop"},
        {"source_labels": ["__name__"], "regex": "h_(.*)", "target_label": "__name__", "replacement": "wait_$1"},
    ]
    target = TextTarget(metric_relabel_configs=rules)
    metrics = metrics_of(target.scrape('go_x 1\n# TYPE h histogram\nh_bucket{le="+Inf"} 3\nh_count 3\nh_sum 1\n'))
    assert metrics["wait"].histogram.data_points[0].count == 3
    assert "go_x" not in metrics
    assert (target.counts.scraped, target.counts.kept) == (4, 3)


def test_a_sample_that_loses_its_name_is_counted() -> None:
    target = TextTarget(metric_relabel_configs=[{"target_label": "__name__", "replacement": ""}])
    assert target.scrape("a 1\n").point_count == len(REPORT)
    assert target.counts.malformed == 1


def test_samples_that_become_equal_are_counted() -> None:
    target = TextTarget(metric_relabel_configs=[{"regex": "x", "action": "labeldrop"}])
    batch = target.scrape('a{x="1"} 1\na{x="2"} 2\na 3\n')
    assert [value for (name, _), value in series_of(batch).items() if name == "a"] == [1]
    assert target.counts.duplicates == 2


@pytest.mark.parametrize(
    ("limit", "problem"),
    [
        ({"sample_limit": 1}, "more samples than sample_limit: 1"),
        ({"label_limit": 3}, "4 labels, over label_limit: 3"),
        ({"label_name_length_limit": 8}, "label_name_length_limit: 8"),
        ({"label_value_length_limit": 6}, "label_value_length_limit: 6"),
    ],
)
def test_a_page_beyond_a_limit_is_refused_as_a_whole(limit: dict[str, Any], problem: str) -> None:
    with pytest.raises(OverLimit, match=problem):
        TextTarget(**limit).scrape('a{long_name="long value"} 1\nb 1\n')


def test_the_sample_limit_counts_after_relabelling() -> None:
    rules = [{"source_labels": ["__name__"], "regex": "b", "action": "drop"}]
    assert TextTarget(sample_limit=1, metric_relabel_configs=rules).scrape("a 1\nb 1\n").point_count


def test_new_names_units_and_scales_come_from_the_mapping() -> None:
    rename = {
        "temp": {"name": "hw.temperature", "unit": "Cel", "scale": 0.001, "attributes": {"hw.type": "cpu"}},
        "c": {"name": "done", "unit": "{step}", "type": "sum"},
        "h": {"name": "wait", "unit": "s", "scale": 0.5},
    }
    text = 'temp{a="b"} 45500\n# TYPE c counter\nc_total 3\n# TYPE h histogram\n'
    text += 'h_bucket{le="1"} 1\nh_bucket{le="+Inf"} 2\nh_sum 3\nh_count 2\n'
    metrics = metrics_of(TextTarget(receiver={"rename": rename}).scrape(text, openmetrics=True))
    point = metrics["hw.temperature"].gauge.data_points[0]
    assert (metrics["hw.temperature"].unit, point.as_double) == ("Cel", 45.5)
    assert {pair.key: pair.value.string_value for pair in point.attributes} == {"hw.type": "cpu", "a": "b"}
    assert metrics["done"].sum.is_monotonic
    assert metrics["done"].sum.data_points[0].as_double == 3
    wait = metrics["wait"].histogram.data_points[0]
    assert ([*wait.explicit_bounds], wait.sum, wait.count) == ([0.5], 1.5, 2)


def test_the_preset_maps_fields_of_dcgm_and_the_identity_of_gpus() -> None:
    labels = 'gpu="1",UUID="GPU-1",device="nvidia1",modelName="H100",Hostname="n1",pod="p",odd="x"'
    text = f"DCGM_FI_DEV_GPU_UTIL{{{labels}}} 57\nDCGM_FI_DEV_FB_USED{{{labels}}} 2\nDCGM_FI_DEV_ODD{{{labels}}} 3\n"
    batch = TextTarget(receiver={"presets": ["dcgm-exporter"]}).scrape(text)
    metrics = metrics_of(batch)
    point = metrics["hw.gpu.utilization"].gauge.data_points[0]
    assert (metrics["hw.gpu.utilization"].unit, point.as_double) == ("1", 0.57)
    assert {pair.key for pair in point.attributes} >= {"hw.id", "hw.name", "hw.model", "zernel.gpu.index", "odd"}
    assert metrics["hw.gpu.memory.usage"].sum.data_points[0].as_double == 2 << 20
    assert "DCGM_FI_DEV_ODD" in metrics
    resources = [resource_metric.resource.attributes for resource_metric in batch.metrics.resource_metrics]
    abouts = [{pair.key: pair.value.string_value for pair in resource} for resource in resources]
    assert any({"host.name": "n1", "hw.id": "GPU-1", "k8s.pod.name": "p"}.items() <= about.items() for about in abouts)


def test_a_ratio_that_some_versions_report_in_per_cent_is_recognised_and_stays_so() -> None:
    target = TextTarget(receiver={"presets": ["dcgm-exporter"]})
    values = []
    for second, text in enumerate(("0.5", "57", "1", "1\nnew 1")):
        batch = target.scrape(f"DCGM_FI_DEV_GPU_UTIL_RATIO {text}\n", 100 + second)
        values.append(metrics_of(batch)["hw.gpu.utilization"].gauge.data_points[0].as_double)
    assert values == [0.5, 0.57, 0.01, 0.01]


def test_suffixes_are_trimmed_by_choice() -> None:
    text = "# TYPE a_seconds counter\n# UNIT a_seconds seconds\na_seconds_total 1\n"
    metrics = metrics_of(TextTarget(receiver={"trim_metric_suffixes": True}).scrape(text, openmetrics=True))
    assert metrics["a"].unit == "s"


def test_exemplars_go_with_counters_and_histograms_also_when_they_appear_later() -> None:
    target = TextTarget()
    text = '# TYPE c counter\nc_total 1{}\n# TYPE h histogram\nh_bucket{{le="+Inf"}} 1{}\nh_count 1\nh_sum 1\n'
    first = metrics_of(target.scrape(text.replace("{{", "{").replace("}}", "}").replace("1{}", "1"), openmetrics=True))
    assert not first["c_total"].sum.data_points[0].exemplars
    exemplar = ' # {trace_id="000102030405060708090a0b0c0d0e0f",span_id="0001020304050607",k="v"} 0.5 99'
    again = text.format(exemplar, exemplar)
    metrics = metrics_of(target.scrape(again, 110, openmetrics=True))
    for point in (metrics["c_total"].sum.data_points[0], metrics["h"].histogram.data_points[0]):
        (one,) = point.exemplars
        assert (one.trace_id, one.span_id) == (bytes(range(16)), bytes(range(8)))
        assert (one.as_double, one.time_unix_nano) == (0.5, 99 * SECOND)
        assert one.filtered_attributes[0].key == "k"
    metrics = metrics_of(target.scrape(text.format("", ""), 120, openmetrics=True))
    assert metrics["c_total"].sum.data_points[0].start_time_unix_nano == 100 * SECOND


def test_a_native_histogram_is_an_exponential_one() -> None:
    target = TextTarget()
    native = NativeHistogram(3, 10, 12.5, 1, 1e-9, (1, [2, 3, 0, 2]), (-2, [2]))
    page = ScrapedPage([("h", (), None)], [10.0], {"h": PageFamily("histogram", "seconds", "Help.")})
    page.natives = {0: native}
    points, _ = target.series.add(page, 100 * SECOND)
    metric = metrics_of(target.series.batch(points, REPORT, 100 * SECOND))["h"]
    (point,) = metric.exponential_histogram.data_points
    assert (metric.unit, point.scale, point.count, point.sum, point.zero_count) == ("s", 3, 10, 12.5, 1)
    assert (point.positive.offset, [*point.positive.bucket_counts]) == (1, [2, 3, 0, 2])
    assert (point.negative.offset, [*point.negative.bucket_counts]) == (-2, [2])


def test_a_type_that_changes_ends_the_old_series() -> None:
    target = TextTarget()
    target.scrape("# TYPE a gauge\na 1\n")
    batch = target.scrape("# TYPE a counter\na 1\n", 110)
    data = [m for m in metrics_in(batch.metrics) if m.name == "a"]
    assert {metric.WhichOneof("data") for metric in data} == {"gauge", "sum"}
    assert ended(batch) == {"a"}


def test_values_of_every_kind_arrive() -> None:
    series = series_of(TextTarget().scrape("a NaN\nb -Inf\nc 1e-320\nd -0\n"))
    values = {name: value for (name, _), value in series.items()}
    assert math.isnan(values["a"])
    assert (values["b"], values["c"]) == (-math.inf, 1e-320)
    assert math.copysign(1, values["d"]) == -1


def starts(target: TextTarget, *values: float) -> list[float]:
    """The start times of a counter in s, for scrapes 10 s apart from 100 s on."""
    found = []
    for number, value in enumerate(values):
        batch = target.scrape(f"# TYPE c counter\nc {value}\n", 100 + 10 * number)
        found.append(metrics_of(batch)["c"].sum.data_points[0].start_time_unix_nano / SECOND)
    return found


def test_a_counter_starts_at_its_first_scrape_and_after_a_reset_at_the_scrape_before() -> None:
    assert starts(TextTarget(), 5, 6, 6, 1, 2, 0) == [100, 100, 100, 120, 120, 140]


def test_a_start_survives_new_series_and_failed_scrapes() -> None:
    target = TextTarget()
    assert starts(target, 5) == [100]
    target.series.end(105 * SECOND)
    batch = target.scrape("# TYPE c counter\nc 6\n# TYPE d counter\nd 1\n", 110)
    assert [metrics_of(batch)[n].sum.data_points[0].start_time_unix_nano // SECOND for n in "cd"] == [100, 110]


def test_resets_are_found_in_histograms_and_summaries_too() -> None:
    text = "# TYPE h histogram\nh_count {0}\nh_sum 1\n# TYPE s summary\ns_count {0}\ns_sum 1\n"
    target = TextTarget()
    for second, count in ((100, 5), (110, 2)):
        metrics = metrics_of(target.scrape(text.format(count), second))
    assert metrics["h"].histogram.data_points[0].start_time_unix_nano == 100 * SECOND
    assert metrics["s"].summary.data_points[0].start_time_unix_nano == 100 * SECOND
    metrics = metrics_of(target.scrape(text.format(1), 120))
    assert metrics["h"].histogram.data_points[0].start_time_unix_nano == 110 * SECOND


def test_created_times_are_starts_and_no_series() -> None:
    text = "# TYPE c counter\nc_total 5\nc_created 90.5\n# TYPE h histogram\nh_count 1\nh_sum 1\nh_created 91\n"
    batch = TextTarget().scrape(text, openmetrics=True)
    metrics = metrics_of(batch)
    assert metrics["c_total"].sum.data_points[0].start_time_unix_nano == 90.5 * SECOND
    assert metrics["h"].histogram.data_points[0].start_time_unix_nano == 91 * SECOND
    assert not {"c_created", "h_created"} & metrics.keys()


def test_a_start_is_never_after_its_point() -> None:
    batch = TextTarget().scrape("# TYPE c counter\nc_total 5\nc_created 500\n", openmetrics=True)
    point = metrics_of(batch)["c_total"].sum.data_points[0]
    assert point.start_time_unix_nano == point.time_unix_nano == 100 * SECOND


def test_a_series_that_vanishes_ends_once_and_may_return() -> None:
    target = TextTarget()
    target.scrape('a{x="1"} 1\na{x="2"} 2\nb 1\n', 100)
    batch = target.scrape('a{x="1"} 1\n', 110)
    assert ended(batch) == {"a", "b"}
    assert len(series_of(batch)) == 1 + len(REPORT)
    assert batch.point_count == 3 + len(REPORT)
    assert ended(target.scrape('a{x="1"} 1\n', 120)) == set()
    assert ended(target.scrape('a{x="1"} 1\nb 1\n', 130)) == set()


def test_all_series_end_when_the_target_fails_but_only_once() -> None:
    target = TextTarget()
    target.scrape("a 1\n# TYPE h histogram\nh_count 1\nh_sum 1\n")
    assert target.series.end(110 * SECOND).count == 2
    assert target.series.end(120 * SECOND).count == 0
    target.scrape("a 1\n# TYPE h histogram\nh_count 1\nh_sum 1\n", 130)
    assert target.series.end(140 * SECOND).count == 2


@pytest.mark.parametrize(("track", "expected"), [(False, {"b"}), (True, {"a", "b"})])
def test_series_with_times_of_their_own_end_by_choice(track: bool, expected: set[str]) -> None:
    target = TextTarget(track_timestamps_staleness=track)
    metrics = metrics_of(target.scrape("a 1 90000\nb 1\n", 100))
    assert metrics["a"].gauge.data_points[0].time_unix_nano == 90 * SECOND
    assert ended(target.scrape("c 1\n", 110)) == expected
