"""`naming: dcgm`: the names, labels, units and types of dcgm-exporter."""

import csv
from collections.abc import Callable
from typing import Any

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import NumberDataPoint
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from otel_zernel.batch import Batch
from otel_zernel.otlp.points import Attributes, key_values
from otel_zernel_exporters.prometheus.config import PrometheusConfig
from otel_zernel_exporters.prometheus.dcgm import LABELS as KNOWN
from otel_zernel_exporters.prometheus.dcgm import DcgmNaming
from otel_zernel_libraries.gpu_names.dcgm import FIELDS
from otel_zernel_libraries.gpu_names.dcgm_help import HELP
from otel_zernel_libraries.prometheus import Format, Options, Page
from otel_zernel_receivers.csv.layouts.dcgm import parse_labels
from otel_zernel_receivers.nvml.readings.status import WATCHES
from tests.exporters.csv.test_csv_exporter import REAL, read
from tests.otlp import data, ended, gauge, number, total
from tests.receivers.nvml.conftest import driver  # noqa: F401  # a fixture
from tests.receivers.nvml.driver import Driver
from tests.receivers.nvml.running import Host
from tests.receivers.prometheus.parts import TextTarget

GPU: Attributes = {"host.name": "node-1", "hw.type": "gpu", "hw.id": "GPU-a", "zernel.gpu.index": 3}
LABELS = 'UUID="GPU-a",gpu="3",hostname="node-1"'


class DcgmPage:
    """A page of the prometheus exporter with `naming: dcgm`."""

    def __init__(self, **options: Any) -> None:
        self.lost: list[tuple[int, str]] = []
        self.warnings: list[str] = []
        self._naming = DcgmNaming(
            drop=lambda count, reason: self.lost.append((count, reason)),
            warn=lambda text, *arguments: self.warnings.append(text % arguments),
            **options,
        )
        verbatim = PrometheusConfig(naming="dcgm").options.verbatim
        self._page = Page(Options(verbatim=verbatim, without_scope_info=True))

    def update(self, *batches: Batch) -> "DcgmPage":
        for batch in batches:
            self._page.update(self._naming.renamed(batch.metrics), 0)
        return self

    @property
    def text(self) -> str:
        return self._page.render(Format(), 0).decode()

    @property
    def lines(self) -> list[str]:
        return [line for line in self.text.splitlines() if not line.startswith("#")]


@pytest.mark.parametrize("field", FIELDS)
def test_every_field_has_its_name_its_labels_its_type_and_its_unit(field: str) -> None:
    measure = FIELDS[field]
    name, unit, kind = measure.descriptor.name, measure.descriptor.unit, measure.descriptor.kind
    point = number(57 * measure.scale, {"hw.id": "GPU-a", **measure.attributes})
    is_sum = kind == "sum"
    metric = gauge(name, point, unit=unit) if kind == "gauge" else total(name, point, unit=unit, monotonic=is_sum)
    page = DcgmPage().update(Batch(data(metric, resource=GPU)))
    code = 'err_code="57",err_msg="Error programming video memory interface",'
    labels = LABELS.replace("gpu=", f"{code}gpu=") if field == "DCGM_FI_DEV_XID_ERRORS" else LABELS
    assert page.lines == [f"{field}{{{labels}}} 57.0"]
    is_counter = is_sum or "NVLINK_BANDWIDTH" in field or field.startswith("DCGM_EXP_")
    assert f"# TYPE {field} {'counter' if is_counter else 'gauge'}\n" in page.text
    assert f"# HELP {field} {HELP.get(field, '')}" in page.text


def test_the_help_is_that_of_dcgm_exporter_else_the_description_and_the_unit() -> None:
    described = gauge("hw.power", number(1), unit="W", description="Power drawn.")
    limit = gauge("zernel.gpu.power.limit", number(1), unit="W", description="The limit.")
    text = DcgmPage().update(Batch(data(described, limit, resource=GPU))).text
    assert "# HELP DCGM_FI_DEV_POWER_USAGE Power draw (in W).\n" in text
    assert "# HELP DCGM_FI_DEV_POWER_MGMT_LIMIT The limit (in W).\n" in text


def test_health_checks_and_peers_of_nvml_have_the_labels_of_dcgm_exporter(
    driver: Callable[[str], Driver],  # noqa: F811
) -> None:
    controls = driver("h100x8")
    options = {"metrics": {name: {"enabled": True} for name in ("zernel.gpu.health", "zernel.gpu.p2p.status")}}
    page = DcgmPage()
    with Host(options).gpus() as gpus:
        page.update(gpus[0].scrape())
        controls.apply("gpu 0", "Field 145 = 1u", "P2PStatus 3 2 = 3")
        page.update(gpus[0].scrape())
    samples = samples_of(page.text.replace(" counter\n", " gauge\n"))
    checks = {
        sample.labels["health_watch"]: (sample.labels["health_error_code"], sample.value)
        for sample in samples
        if sample.name == "DCGM_EXP_GPU_HEALTH_STATUS"
    }
    peers = [
        (sample.labels["gpu"], sample.labels["peer_gpu"], sample.labels["link_status"], sample.value)
        for sample in samples
        if sample.name == "DCGM_EXP_P2P_STATUS"
    ]
    assert checks.pop("MEM") == ("DCGM_FR_ROW_REMAP_FAILURE", 20)
    assert set(checks.values()) == {("DCGM_FR_OK", 0)}
    assert sorted(checks) == sorted(set(WATCHES) - {"MEM"})
    broken = ("0", "3", "TopologyNotSupported", 3)
    assert sorted(peers) == sorted([("0", str(peer), "OK", 0) for peer in (1, 2, 4, 5, 6, 7)] + [broken])


def test_a_mig_instance_has_the_uuid_of_its_board_and_its_own_profile(
    driver: Callable[[str], Driver],  # noqa: F811
) -> None:
    driver("a100-mig")
    with Host().gpus() as gpus:
        page = DcgmPage().update(*(gpu.scrape() for gpu in gpus))
    used = [line for line in page.lines if line.startswith("DCGM_FI_DEV_FB_USED{")]
    board = (
        'DCGM_FI_DRIVER_VERSION="550.90.07",{mig}UUID="GPU-aaaaaaaa-0000-0000-0000-000000000000",'
        'device="nvidia0",gpu="0",hostname="node-1",modelName="NVIDIA A100-SXM4-40GB",pci_bus_id="00000000:07:00.0"'
    )
    instances = ("", 'GPU_I_ID="2",GPU_I_PROFILE="3g.20gb",', 'GPU_I_ID="9",GPU_I_PROFILE="1g.5gb",')
    assert [line.rpartition(" ")[0] for line in used] == [
        f"DCGM_FI_DEV_FB_USED{{{board.format(mig=mig)}}}" for mig in instances
    ]


@pytest.mark.skipif(not REAL.exists(), reason="needs the recorded DCGM file, which is not in the repository")
async def test_the_page_of_a_recorded_dcgm_file_has_its_names_its_labels_and_its_numbers() -> None:
    page = DcgmPage(hostname="Hostname").update(await read(REAL))
    shown = {(sample.name, frozenset(sample.labels.items())): sample.value for sample in samples_of(page.text)}
    with REAL.open() as file:
        rows = [(row["metric_name"], label_text_of(row), float(row["value"])) for row in csv.DictReader(file)]
    assert shown == {(name, labels): value for name, labels, value in rows}
    assert len(shown) == len(rows) == 2470


def samples_of(text: str) -> list[Sample]:
    return [sample for family in text_string_to_metric_families(text) for sample in family.samples]


def label_text_of(row: dict[str, str]) -> frozenset[tuple[str, str]]:
    """The labels that dcgm-exporter wrote, without those that Prometheus added when it scraped them."""
    labels = parse_labels(row["labels_raw"])
    return frozenset((name, text) for name, text in labels.items() if name in {*KNOWN, "Hostname"} and text)


def test_pod_namespace_and_container_are_labels() -> None:
    names = {"k8s.pod.name": "llm-0", "k8s.namespace.name": "ml", "k8s.container.name": "train"}
    page = DcgmPage().update(Batch(data(gauge("hw.power", number(7), unit="W"), resource={**GPU, **names})))
    labels = 'UUID="GPU-a",container="train",gpu="3",hostname="node-1",namespace="ml",pod="llm-0"'
    assert page.lines == [f"DCGM_FI_DEV_POWER_USAGE{{{labels}}} 7.0"]


def test_metrics_that_dcgm_does_not_have_keep_their_names_and_resources() -> None:
    others = gauge("zernel.gpu.clock", number(1, {"zernel.gpu.clock.domain": "graphics"}), unit="Hz")
    step = gauge("zernel.step.jitter", number(2))
    page = DcgmPage().update(Batch(data(others, step, gauge("hw.power", number(3), unit="W"), resource=GPU)))
    assert sorted(page.lines) == [
        f"DCGM_FI_DEV_POWER_USAGE{{{LABELS}}} 3.0",
        'zernel_gpu_clock_hertz{zernel_gpu_clock_domain="graphics"} 1',
        "zernel_step_jitter 2",
    ]


def test_the_power_of_a_host_is_not_that_of_a_gpu() -> None:
    power = gauge("hw.power", number(300, {"hw.id": "psu-1", "hw.type": "power_supply"}), unit="W")
    assert DcgmPage().update(Batch(data(power, resource={"host.name": "node-1"}))).lines == [
        'hw_power_watts{hw_id="psu-1",hw_type="power_supply"} 300'
    ]


def scraped(page: str) -> Batch:
    return TextTarget(receiver={"presets": ["dcgm-exporter"]}).scrape(page)


IDENTITY = 'gpu="0",UUID="GPU-1",pci_bus_id="00000000:31:00.0",device="nvidia0",modelName="H100",hostname="a"'


@pytest.mark.parametrize(
    ("field", "kind", "labels"),
    [
        ("DCGM_FI_PROF_SM_ACTIVE", "gauge", 'hpc_job="1001"'),
        ("DCGM_FI_DEV_XID_ERRORS", "gauge", 'err_code="79",err_msg="GPU has fallen off the bus"'),
        ("DCGM_FI_DEV_GPU_TEMP", "gauge", 'vgpu="2",container="c",namespace="n",pod="p",app="train"'),
        ("DCGM_FI_DEV_NVLINK_BANDWIDTH_L0", "counter", 'hpc_job="1"'),
        ("DCGM_FI_DEV_POWER_VIOLATION", "counter", ""),
        ("DCGM_FI_DEV_VGPU_LICENSE_STATUS", "gauge", ""),
        ("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", "gauge", ""),
        ("DCGM_EXP_XID_ERRORS_COUNT", "counter", 'window_size_in_ms="300000",xid="79"'),
        ("DCGM_EXP_GPU_HEALTH_STATUS", "counter", 'health_watch="PCIE",health_error_code=""'),
        ("DCGM_FI_DEV_OF_A_LATER_RELEASE", "counter", 'hpc_job="1",pod="p"'),
        ("DCGM_EXP_OF_A_LATER_RELEASE", "gauge", 'vgpu="2"'),
    ],
)
def test_a_scraped_page_keeps_its_names_its_types_and_its_labels(field: str, kind: str, labels: str) -> None:
    labels = f"{IDENTITY},{labels}" if labels else IDENTITY
    page = DcgmPage().update(scraped(f"# HELP {field} x\n# TYPE {field} {kind}\n{field}{{{labels}}} 7\n"))
    (sample,) = [sample for sample in samples_of(page.text.replace(" counter\n", " gauge\n")) if sample.name == field]
    expected = {name: text for name, text in parse_labels(labels).items() if text}
    assert {name: sample.labels.get(name) for name in expected} == expected
    assert sample.value == 7
    assert "job" not in sample.labels
    assert f"# TYPE {field} {kind}\n" in page.text


def test_two_jobs_on_one_gpu_are_two_series() -> None:
    rows = "".join(
        f'DCGM_FI_PROF_SM_ACTIVE{{{IDENTITY},hpc_job="{job}"}} {value}\n' for job, value in ((1, 0.25), (2, 0.75))
    )
    page = DcgmPage().update(scraped(f"# TYPE DCGM_FI_PROF_SM_ACTIVE gauge\n{rows}"))
    assert sorted(sample.value for sample in samples_of(page.text) if sample.name.startswith("DCGM")) == [0.25, 0.75]
    assert page.lost == []


def test_series_that_get_the_same_labels_are_counted_and_logged_once() -> None:
    points = [number(value, {"my.job": str(value)}) for value in (1, 2)]
    page, batch = DcgmPage(), Batch(data(gauge("hw.power", *points, unit="W"), resource=GPU))
    page.update(batch, batch, batch)
    assert len(page.lines) == 1
    assert page.lost
    assert {reason for _, reason in page.lost} == {"collision"}
    (warning,) = page.warnings
    assert warning.startswith("Prometheus metric DCGM_FI_DEV_POWER_USAGE: two series of GPUs have the same labels")


def test_a_gpu_whose_resource_changes_is_no_collision() -> None:
    page = DcgmPage()
    for pod in ("a", "b", "c"):
        page.update(Batch(data(gauge("hw.power", number(1), unit="W"), resource={**GPU, "odd.attribute": pod})))
    assert page.lost == []


def test_the_mask_of_throttle_reasons_and_all_nvlink_traffic_are_sums_of_series() -> None:
    reasons = {"idle": 0, "sw_power_cap": 1, "hw_thermal_slowdown": 1}
    active = gauge(
        "zernel.gpu.throttle.active",
        *(number(value, {"zernel.gpu.throttle.reason": reason}) for reason, value in reasons.items()),
    )
    both = gauge(
        "zernel.gpu.nvlink.throughput",
        *(
            number(1024e3 * 5, {"network.io.direction": way, "zernel.gpu.counter.source": "profiler"})
            for way in ("transmit", "receive")
        ),
        unit="By/s",
    )
    page = DcgmPage().update(Batch(data(active, both, resource=GPU)))
    lines = page.lines
    assert "# TYPE DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL counter\n" in page.text
    assert f"DCGM_FI_DEV_CLOCKS_EVENT_REASONS{{{LABELS}}} 68.0" in lines
    assert f"DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL{{{LABELS}}} 10.0" in lines
    assert len([line for line in lines if line.startswith("zernel_gpu_throttle_active")]) == 3


def test_a_sum_has_the_points_of_one_time_the_newest_and_ends_with_them() -> None:
    def active(second: int, point: NumberDataPoint) -> NumberDataPoint:
        point.time_unix_nano = second * 10**9
        point.attributes.extend(key_values({"zernel.gpu.throttle.reason": "sw_power_cap"}))
        return point

    name, page = "DCGM_FI_DEV_CLOCKS_EVENT_REASONS", DcgmPage()
    for points, value in (
        ([active(2, number(1)), active(1, number(1))], [4.0]),
        ([active(3, number(1)), active(4, number(0))], [0.0]),
        ([active(5, number(1)), active(5, ended())], [4.0]),
        ([active(6, ended())], []),
    ):
        lines = page.update(Batch(data(gauge("zernel.gpu.throttle.active", *points), resource=GPU))).lines
        assert [float(line.split()[-1]) for line in lines if line.startswith(name)] == value


def test_the_label_of_the_host_is_that_of_the_newest_release_unless_the_option_says_otherwise() -> None:
    batch = Batch(data(gauge("hw.power", number(3), unit="W"), resource=GPU))
    assert 'hostname="node-1"' in DcgmPage().update(batch).text
    assert 'Hostname="node-1"' in DcgmPage(hostname="Hostname").update(batch).text
    assert PrometheusConfig(naming="dcgm").dcgm_hostname_label == "hostname"


@pytest.mark.parametrize("own", [{}, {"hw.id": "GPU-a"}])
def test_a_series_that_ends_leaves_the_page(own: Attributes) -> None:
    page = DcgmPage().update(Batch(data(gauge("hw.power", number(3, own), unit="W"), resource=GPU)))
    assert len(page.lines) == 1
    assert page.update(Batch(data(gauge("hw.power", ended(own), unit="W"), resource=GPU))).lines == []


@pytest.mark.parametrize("blank", [2147483632, 0x7FFFFFFFFFFFFFF0, 2.0**47])
def test_a_field_that_comes_by_otlp_ends_while_its_value_is_blank(blank: float) -> None:
    """As another collector scrapes and sends it."""
    page = DcgmPage()
    for value, shown in ((61, [61.0]), (blank, []), (62, [62.0])):
        metric = gauge("DCGM_FI_DEV_GPU_TEMP", number(value, {"gpu": "0", "UUID": "GPU-a"}))
        lines = page.update(Batch(data(metric, resource={"service.name": "dcgm"}))).lines
        assert [float(line.split()[-1]) for line in lines if line.startswith("DCGM")] == shown


def test_other_exporters_get_the_batch_as_it_was() -> None:
    batch = Batch(data(gauge("hw.power", number(3), unit="W"), resource=GPU))
    before = batch.metrics.SerializeToString()
    DcgmPage().update(batch)
    assert batch.metrics.SerializeToString() == before
