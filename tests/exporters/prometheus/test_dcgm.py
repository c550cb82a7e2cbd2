"""`naming: dcgm`: the names, labels, units and types of dcgm-exporter."""

import csv
from collections.abc import Callable

import pytest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from docs.dcgm_names import README, written_into
from otel_zernel.batch import Batch
from otel_zernel.exposition import Format, Options, Page
from otel_zernel.formats.dcgm import FIELDS
from otel_zernel.otlp.points import Attributes
from otel_zernel_exporters.prometheus.dcgm import LABELS as KNOWN
from otel_zernel_exporters.prometheus.dcgm import DcgmNaming
from otel_zernel_receivers.csv.layouts.labels import parse_labels
from tests.core.exposition.otlp import data, ended, gauge, number, total
from tests.exporters.csv.test_csv_exporter import REAL, read
from tests.receivers.nvml.conftest import driver  # noqa: F401  # a fixture
from tests.receivers.nvml.driver import Driver
from tests.receivers.nvml.running import Host

GPU: Attributes = {"host.name": "node-1", "hw.type": "gpu", "hw.id": "GPU-a", "zernel.gpu.index": 3}
LABELS = 'Hostname="node-1",UUID="GPU-a",gpu="3"'


class DcgmPage:
    """A page of the prometheus exporter with `naming: dcgm`."""

    def __init__(self) -> None:
        self._naming = DcgmNaming()
        self._page = Page(Options(verbatim=FIELDS, without_scope_info=True))

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
    assert page.lines == [f"{field}{{{LABELS}}} 57.0"]
    assert f"# TYPE {field} {'counter' if is_sum else 'gauge'}\n" in page.text


def test_the_help_is_the_description_and_the_unit() -> None:
    described = gauge("hw.power", number(1), unit="W", description="Power drawn.")
    assert (
        "# HELP DCGM_FI_DEV_POWER_USAGE Power drawn (in W).\n"
        in DcgmPage().update(Batch(data(described, resource=GPU))).text
    )


def test_a_mig_instance_has_the_uuid_of_its_board_and_its_own_profile(
    driver: Callable[[str], Driver],  # noqa: F811
) -> None:
    driver("a100-mig")
    with Host().gpus() as gpus:
        page = DcgmPage().update(*(gpu.scrape() for gpu in gpus))
    used = [line for line in page.lines if line.startswith("DCGM_FI_DEV_FB_USED{")]
    board = (
        'DCGM_FI_DRIVER_VERSION="550.90.07",{mig}Hostname="node-1",UUID="GPU-aaaaaaaa-0000-0000-0000-000000000000",'
        'device="nvidia0",gpu="0",modelName="NVIDIA A100-SXM4-40GB",pci_bus_id="00000000:07:00.0"'
    )
    instances = ("", 'GPU_I_ID="2",GPU_I_PROFILE="3g.20gb",', 'GPU_I_ID="9",GPU_I_PROFILE="1g.5gb",')
    assert [line.rpartition(" ")[0] for line in used] == [
        f"DCGM_FI_DEV_FB_USED{{{board.format(mig=mig)}}}" for mig in instances
    ]


@pytest.mark.skipif(not REAL.exists(), reason="needs the recorded DCGM file, which is not in the repository")
async def test_the_page_of_a_recorded_dcgm_file_has_its_names_its_labels_and_its_numbers() -> None:
    page = DcgmPage().update(await read(REAL))
    shown = {(one.name, frozenset(one.labels.items())): one.value for one in samples_of(page.text)}
    with REAL.open() as file:
        rows = [(row["metric_name"], label_text_of(row), float(row["value"])) for row in csv.DictReader(file)]
    assert shown == {(name, labels): value for name, labels, value in rows}
    assert len(shown) == len(rows) == 2470


def samples_of(text: str) -> list[Sample]:
    return [sample for family in text_string_to_metric_families(text) for sample in family.samples]


def label_text_of(row: dict[str, str]) -> frozenset[tuple[str, str]]:
    """The labels that dcgm-exporter wrote, without those that Prometheus added when it scraped them."""
    labels = parse_labels(row["labels_raw"])
    return frozenset((name, text) for name, text in labels.items() if name in KNOWN and text)


def test_pod_namespace_and_container_are_labels() -> None:
    names = {"k8s.pod.name": "llm-0", "k8s.namespace.name": "ml", "k8s.container.name": "train"}
    page = DcgmPage().update(Batch(data(gauge("hw.power", number(7), unit="W"), resource={**GPU, **names})))
    labels = 'Hostname="node-1",UUID="GPU-a",container="train",gpu="3",namespace="ml",pod="llm-0"'
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


def test_a_series_that_ends_leaves_the_page() -> None:
    page = DcgmPage().update(Batch(data(gauge("hw.power", number(3), unit="W"), resource=GPU)))
    assert len(page.lines) == 1
    assert page.update(Batch(data(gauge("hw.power", ended(), unit="W"), resource=GPU))).lines == []


def test_other_exporters_get_the_batch_as_it_was() -> None:
    batch = Batch(data(gauge("hw.power", number(3), unit="W"), resource=GPU))
    before = batch.metrics.SerializeToString()
    DcgmPage().update(batch)
    assert batch.metrics.SerializeToString() == before


def test_the_table_in_the_readme_is_current() -> None:
    text = README.read_text("utf-8")
    assert written_into(text) == text
    assert all(f"`{field}`" in text for field in FIELDS)
