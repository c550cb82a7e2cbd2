"""The labels `job` and `instance`, `target_info`, and resource attributes as labels."""

import pytest

from otel_zernel.otlp.points import Attributes
from otel_zernel_libraries.prometheus import ResourceLabels
from tests.libraries.prometheus.shown import OPENMETRICS, Shown
from tests.otlp import (
    ended,
    gauge,
    number,
)

HOST: Attributes = {"service.namespace": "ns", "service.name": "app", "service.instance.id": "i", "host.name": "h"}


def test_every_series_has_job_and_instance_and_target_info_has_the_other_attributes(shown: Shown) -> None:
    shown.update(gauge("a", number(1)), resource=HOST)
    assert shown.lines() == [
        'target_info{host_name="h",instance="i",job="ns/app"} 1',
        'a{instance="i",job="ns/app"} 1',
    ]
    assert "# TYPE target_info gauge\n" in shown.text()
    assert '# TYPE target info\ntarget_info{host_name="h"' in shown.text(OPENMETRICS)


def test_target_info_has_the_labels_that_all_resources_of_the_target_share(shown: Shown) -> None:
    for gpu in ("0", "1"):
        shown.update(gauge("a", number(1, {"hw.id": gpu})), resource={**HOST, "hw.id": gpu, "only": gpu})
    assert shown.lines()[0] == 'target_info{host_name="h",instance="i",job="ns/app"} 1'


def test_a_resource_without_a_service_has_no_target_info(shown: Shown) -> None:
    shown.update(gauge("a", number(1)), resource={"host.name": "h"})
    assert shown.lines() == ["a 1"]


def test_a_target_without_other_attributes_has_no_target_info(shown: Shown) -> None:
    shown.update(gauge("a", number(1)), resource={"service.name": "app"})
    assert shown.lines() == ['a{job="app"} 1']


def test_target_info_is_removed_with_the_last_series(shown: Shown) -> None:
    shown.update(gauge("a", number(1)), resource=HOST)
    assert len(shown.lines()) == 2
    shown.update(gauge("a", ended()), resource=HOST)
    assert shown.lines() == []


def test_a_resource_attribute_named_job_becomes_exported(shown: Shown) -> None:
    shown.update(gauge("a", number(1)), resource={"service.name": "app", "job": "slurm-7"})
    assert shown.lines() == ['target_info{exported_job="slurm-7",job="app"} 1', 'a{job="app"} 1']


def test_target_labels_can_be_off() -> None:
    shown = Shown(target_labels=False)
    shown.update(gauge("a", number(1)), resource=HOST)
    info = 'host_name="h",service_instance_id="i",service_name="app",service_namespace="ns"'
    assert shown.lines() == [f"target_info{{{info}}} 1", "a 1"]


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (ResourceLabels(included=("host.*",)), 'a{host_name="h",job="s",zone="z"} 1'),
        (ResourceLabels(("*",), excluded=("service.*",)), 'a{host_name="h",job="s",os_type="linux",zone="z"} 1'),
        (ResourceLabels(excluded=("service.*", "host.name")), 'a{job="s",os_type="linux",zone="z"} 1'),
        (ResourceLabels(), 'a{job="s",zone="z"} 1'),
    ],
)
def test_chosen_resource_attributes_are_on_every_series(choice: ResourceLabels, expected: str) -> None:
    shown = Shown(resource_constant_labels=choice)
    resource: Attributes = {"service.name": "s", "host.name": "h", "os.type": "linux"}
    shown.update(gauge("a", number(1, {"zone": "z"})), resource=resource)
    assert shown.lines()[-1] == expected


def test_an_attribute_of_a_point_overrides_the_resources() -> None:
    shown = Shown(resource_constant_labels=ResourceLabels(("hw.id",)))
    shown.update(gauge("a", number(1, {"hw.id": "point"})), resource={"hw.id": "resource"})
    assert shown.lines() == ['a{hw_id="point"} 1']
