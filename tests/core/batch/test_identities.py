"""The targets of encoded metrics are found without a look at the points."""

from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData, ResourceMetrics
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from otel_zernel.batch.identities import identities_of
from tests.otlp import data, gauge, number

TRAIN = {"service.name": "train", "service.instance.id": "node/812"}


def identities(*messages: MetricsData) -> set[bytes]:
    return set(identities_of(b"".join(message.SerializeToString() for message in messages)))


def of(**attributes: str) -> MetricsData:
    return data(gauge("g", number(1.0)), resource={key.replace("_", "."): text for key, text in attributes.items()})


def test_only_the_service_identifies_a_target() -> None:
    first = data(gauge("g", number(1.0)), resource={**TRAIN, "host.name": "node"})
    second = data(gauge("h", number(1.0)), resource={"k8s.pod.name": "a", **dict(reversed(TRAIN.items()))})
    other = data(gauge("g", number(1.0)), resource={**TRAIN, "service.instance.id": "node/813"})
    assert len(identities(first, second)) == 1
    assert len(identities(first, second, other)) == 2


def test_metrics_without_a_service_share_a_target() -> None:
    assert identities(of(), of(host_name="a"), MetricsData(resource_metrics=[ResourceMetrics()])) == {b""}
    assert identities() == set()


def test_a_resource_behind_its_metrics_is_found() -> None:
    message = of(service_name="train")
    resource = message.resource_metrics[0]
    scopes = ResourceMetrics(scope_metrics=resource.scope_metrics, schema_url="x").SerializeToString()
    inner = scopes + ResourceMetrics(resource=resource.resource).SerializeToString()
    swapped = MetricsData.DESCRIPTOR.fields_by_name["resource_metrics"].number
    encoded = bytes([swapped << 3 | 2, len(inner)]) + inner
    assert (
        set(identities_of(encoded))
        == identities(message)
        == {Resource(attributes=resource.resource.attributes).SerializeToString()}
    )


def test_invalid_metrics_have_no_target() -> None:
    assert set(identities_of(of(service_name="train").SerializeToString()[:-1])) == set()
