"""`naming: dcgm`: XIDs, clock events and the traffic of single links, from the receiver nvml's metrics."""

import math
from collections.abc import Callable, Collection
from cProfile import Profile
from typing import Any

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData
from prometheus_client.parser import text_string_to_metric_families

from otel_zernel.batch import Batch
from otel_zernel.otlp.points import Attributes
from otel_zernel_exporters.prometheus.dcgm import DcgmNaming
from otel_zernel_libraries.gpu_names.nvidia_smi import THROTTLE_BITS
from otel_zernel_receivers.nvml.driver.events import Xid
from tests.exporters.prometheus.test_dcgm import GPU, DcgmPage, scraped
from tests.otlp import ENDED, NOW, SECOND, data, gauge, number, total
from tests.receivers.nvml.conftest import driver  # noqa: F401  # a fixture
from tests.receivers.nvml.driver import Driver
from tests.receivers.nvml.running import Host
from tests.receivers.prometheus.parts import TextTarget

LAST, XIDS, CLOCKS = "DCGM_FI_DEV_XID_ERRORS", "DCGM_EXP_XID_ERRORS_COUNT", "DCGM_EXP_CLOCK_EVENTS_COUNT"
WINDOW = {"window_size_in_ms": "300000"}


def shown(page: DcgmPage, name: str) -> list[tuple[dict[str, str], float]]:
    """The labels of the page's series, without those of the GPU, and their values."""
    families = text_string_to_metric_families(page.text.replace(" counter\n", " gauge\n"))
    gpu = {"UUID", "gpu", "hostname", "DCGM_FI_DRIVER_VERSION", "device", "modelName", "pci_bus_id"}
    return sorted(
        (
            ({label: text for label, text in sample.labels.items() if label not in gpu}, sample.value)
            for family in families
            for sample in family.samples
            if sample.name == name
        ),
        key=str,
    )


def xids(second: int, counts: dict[int, int], last: int, **fields: int) -> Batch:
    """What nvml sends of XIDs: a count by code, and the last code."""
    time = NOW + second * SECOND
    points = [number(count, {"zernel.gpu.xid.code": code}, time, **fields) for code, count in counts.items()]
    metrics = [total("zernel.gpu.xid.errors", *points, unit="{error}")] if points else []
    return Batch(data(*metrics, gauge("zernel.gpu.xid.last", number(float(last), time=time)), resource=GPU))


def test_the_last_xid_has_its_code_and_its_text_and_replaces_the_one_before() -> None:
    page = DcgmPage().update(xids(0, {}, 0))
    assert shown(page, LAST) == [({"err_code": "0", "err_msg": "No Error"}, 0)]
    page.update(xids(10, {79: 1}, 79))
    assert shown(page, LAST) == [({"err_code": "79", "err_msg": "GPU has fallen off the bus"}, 79)]
    page.update(xids(20, {79: 1, 1000: 1}, 1000))
    assert shown(page, LAST) == [({"err_code": "1000", "err_msg": "Unknown Error"}, 1000)]
    assert page.lost == []


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_last_xid_that_is_no_code_has_no_labels_and_costs_no_other_metric(value: float) -> None:
    last = gauge("zernel.gpu.xid.last", number(value, time=NOW + 10 * SECOND))
    both = Batch(data(last, gauge("hw.power", number(3), unit="W"), resource=GPU))
    page = DcgmPage().update(xids(0, {}, 79), both)
    assert [(labels, str(number)) for labels, number in shown(page, LAST)] == [({}, str(value))]
    assert shown(page, "DCGM_FI_DEV_POWER_USAGE") == [({}, 3)]
    assert shown(page.update(xids(20, {}, 0)), LAST) == [({"err_code": "0", "err_msg": "No Error"}, 0)]


GRAPHICS = {"err_code": "13", "err_msg": "Graphics Engine Exception"}
PRESET: dict[str, Any] = {"presets": ["dcgm-exporter"]}


@pytest.mark.parametrize(
    ("receiver", "kind", "value", "labels"),
    [
        (PRESET, "gauge", "13", GRAPHICS),
        (PRESET, "gauge", "NaN", {}),
        ({}, "gauge", "NaN", {}),
        ({}, "counter", "13", GRAPHICS),
    ],
)
def test_a_scraped_last_xid_without_its_code_costs_no_other_metric(
    receiver: dict[str, Any], kind: str, value: str, labels: dict[str, str]
) -> None:
    gpu = 'gpu="0",UUID="GPU-1",device="nvidia0",modelName="H100",hostname="a"'
    text = (
        f"# TYPE {LAST} {kind}\n{LAST}{{{gpu}}} {value}\n"
        f"# TYPE DCGM_FI_DEV_GPU_TEMP gauge\nDCGM_FI_DEV_GPU_TEMP{{{gpu}}} 40\n"
    )
    page = DcgmPage().update(TextTarget(receiver=receiver).scrape(text))
    assert [(own, str(number)) for own, number in shown(page, LAST)] == [(labels, str(float(value)))]
    assert shown(page, "DCGM_FI_DEV_GPU_TEMP") == [({}, 40)]


def test_xids_are_counted_by_code_over_five_minutes() -> None:
    page = DcgmPage().update(xids(0, {}, 0))
    assert shown(page, XIDS) == [(WINDOW, 0)]
    assert f"# TYPE {XIDS} counter\n" in page.text
    page.update(xids(100, {79: 2}, 79), xids(200, {79: 3, 13: 1}, 13))
    assert shown(page, XIDS) == [({**WINDOW, "xid": "13"}, 1), ({**WINDOW, "xid": "79"}, 3)]
    assert shown(page.update(xids(410, {79: 3, 13: 1}, 13)), XIDS) == [
        ({**WINDOW, "xid": "13"}, 1),
        ({**WINDOW, "xid": "79"}, 1),
    ]
    assert shown(page.update(xids(510, {79: 3, 13: 1}, 13)), XIDS) == [(WINDOW, 0)]


def test_errors_from_before_the_exporter_count_if_all_of_them_are_within_the_window() -> None:
    old, young = NOW - 3600 * SECOND, NOW - 60 * SECOND
    assert shown(DcgmPage().update(xids(0, {79: 4}, 79, start_time_unix_nano=old)), XIDS) == [(WINDOW, 0)]
    page = DcgmPage().update(xids(0, {79: 4}, 79, start_time_unix_nano=young))
    assert shown(page, XIDS) == [({**WINDOW, "xid": "79"}, 4)]


def test_a_count_that_starts_again_adds_its_whole_value() -> None:
    page = DcgmPage().update(xids(0, {}, 0), xids(10, {79: 5}, 79), xids(20, {79: 2}, 79))
    assert shown(page, XIDS) == [({**WINDOW, "xid": "79"}, 7)]


def reasons(second: int, active: Collection[str], gpu: str = "GPU-a") -> Batch:
    """What nvml sends of the reasons that reduce the clocks."""
    points = [
        number(float(reason in active), {"zernel.gpu.throttle.reason": reason}, NOW + second * SECOND)
        for reason in THROTTLE_BITS
    ]
    return Batch(data(gauge("zernel.gpu.throttle.active", *points), resource={**GPU, "hw.id": gpu}))


def test_clock_events_are_counted_by_scrapes_that_saw_them() -> None:
    page = DcgmPage().update(reasons(0, []))
    assert shown(page, CLOCKS) == [(WINDOW, 0)]
    page.update(reasons(10, ["sw_power_cap"]), reasons(20, ["sw_power_cap", "hw_power_brake"]))
    assert shown(page, CLOCKS) == [
        ({**WINDOW, "clock_event": "hw_power_brake"}, 1),
        ({**WINDOW, "clock_event": "power_cap"}, 2),
    ]
    assert shown(page.update(reasons(315, [])), CLOCKS) == [
        ({**WINDOW, "clock_event": "hw_power_brake"}, 1),
        ({**WINDOW, "clock_event": "power_cap"}, 1),
    ]
    assert shown(page.update(reasons(700, [])), CLOCKS) == [(WINDOW, 0)]


def ends(second: int, batch: Batch, *names: str) -> Batch:
    """The ends of the batch's series, or of those of these metrics only; the others keep their values."""
    metrics = MetricsData.FromString(batch.metrics.SerializeToString())
    for metric in metrics.resource_metrics[0].scope_metrics[0].metrics:
        for point in (metric.sum if metric.HasField("sum") else metric.gauge).data_points:
            point.time_unix_nano = NOW + second * SECOND
            if not names or metric.name in names:
                point.flags = ENDED
    return Batch(metrics)


def test_the_counts_of_events_end_with_their_gpu() -> None:
    clocks, errors = reasons(10, ["sw_power_cap"]), xids(10, {79: 1}, 79)
    page = DcgmPage().update(reasons(0, []), xids(0, {}, 0), clocks, errors)
    assert len(shown(page, CLOCKS)) == len(shown(page, XIDS)) == 1
    page.update(ends(20, clocks), ends(20, errors))
    assert page.lines == []
    assert shown(page.update(reasons(30, [])), CLOCKS) == [(WINDOW, 0)]


def test_a_batch_with_the_last_values_of_a_gpu_and_their_ends_ends_its_counts() -> None:
    page, clocks = DcgmPage().update(reasons(0, [])), reasons(10, ["sw_power_cap"])
    page.update(Batch.join([clocks, ends(20, clocks)]))
    assert page.lines == []


def test_the_counts_of_events_stay_while_the_gpu_has_a_value_or_has_had_a_later_one() -> None:
    errors = xids(10, {79: 1}, 79)
    page = DcgmPage().update(xids(0, {}, 0), errors)
    page.update(ends(20, errors, "zernel.gpu.xid.errors"))
    assert shown(page, XIDS) == [({**WINDOW, "xid": "79"}, 1)]
    page.update(ends(5, errors))
    assert shown(page, XIDS) == [({**WINDOW, "xid": "79"}, 1)]


def test_a_scraped_page_keeps_its_own_counts() -> None:
    gpu = 'gpu="0",UUID="GPU-1",device="nvidia0",modelName="H100",hostname="a"'
    page = DcgmPage().update(
        scraped(
            f"# TYPE {LAST} gauge\n{LAST}{{{gpu}}} 0\n"
            f'# TYPE {XIDS} counter\n{XIDS}{{{gpu},window_size_in_ms="60000",xid="13"}} 2\n'
        )
    )
    assert shown(page, XIDS) == [({"window_size_in_ms": "60000", "xid": "13"}, 2)]


def test_a_machine_has_the_fields_that_users_enable_beside_those_of_the_default_list(
    driver: Callable[[str], Driver],  # noqa: F811
) -> None:
    controls = driver("h100x8")
    host = Host({"metrics": {"zernel.gpu.nvlink.link.throughput": {"enabled": True}}})
    page = DcgmPage()
    with host.gpus() as gpus:
        counters = [f"Field {field}{(link and f'.{link}') or ''}" for field in (138, 139) for link in range(18)]
        for count in (0, 4000, 12000):
            controls.apply("gpu 0", *(f"{counter} = {count}" for counter in counters))
            page.update(gpus[0].scrape())
            host.clock.advance(4)
            host.xids.add(gpus[0].board.identity.uuid, Xid(79))
    for link in range(18):
        assert shown(page, f"DCGM_FI_DEV_NVLINK_BANDWIDTH_L{link}") == [({}, 4)]
    assert shown(page, "DCGM_FI_DEV_VGPU_LICENSE_STATUS") == [({}, 0)]
    assert shown(page, CLOCKS) == [({**WINDOW, "clock_event": "power_cap"}, 3)]
    assert shown(page, XIDS) == [({**WINDOW, "xid": "79"}, 2)]
    ((_, traffic),) = shown(page, "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL")
    assert traffic == pytest.approx(2 * 210000 * 2**20 / 1024e3)


def test_twice_as_many_gpus_are_twice_the_work() -> None:
    def calls_for(gpus: int) -> int:
        batches = [reasons(0, THROTTLE_BITS, f"GPU-{gpu}") for gpu in range(gpus)]
        metrics = MetricsData(
            resource_metrics=[
                resource_metric for batch in batches for resource_metric in batch.metrics.resource_metrics
            ]
        )
        naming, profile = DcgmNaming(), Profile()
        naming.renamed(metrics)  # the names and labels are found once
        profile.runcall(naming.renamed, metrics)
        return sum(entry.callcount for entry in profile.getstats())

    assert calls_for(60) < 2.5 * calls_for(30)


def test_the_traffic_of_a_link_is_the_sum_of_its_directions() -> None:
    def points(link: int) -> list[Attributes]:
        source: Attributes = {"zernel.gpu.counter.source": "driver", "zernel.gpu.nvlink.link": link}
        return [{**source, "network.io.direction": way} for way in ("transmit", "receive")]

    traffic = gauge(
        "zernel.gpu.nvlink.link.throughput",
        *(number(rate, own) for link, rate in ((0, 1024e3), (17, 2048e3)) for own in points(link)),
        unit="By/s",
    )
    page = DcgmPage().update(Batch(data(traffic, resource=GPU)))
    assert shown(page, "DCGM_FI_DEV_NVLINK_BANDWIDTH_L0") == [({}, 2)]
    assert shown(page, "DCGM_FI_DEV_NVLINK_BANDWIDTH_L17") == [({}, 4)]
    assert "# TYPE DCGM_FI_DEV_NVLINK_BANDWIDTH_L0 counter\n" in page.text
    assert page.lost == []
