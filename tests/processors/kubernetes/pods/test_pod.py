"""A pod from its JSON."""

import pytest

from otel_zernel_processors.kubernetes.pods.pod import pod_of
from tests.processors.kubernetes.items import CONTAINER, UID, pod_item


def test_names_owners_and_containers_are_read() -> None:
    owner = {"kind": "ReplicaSet", "name": "web-7c9d", "uid": "u1"}
    item = pod_item(labels={"app": "web", "pod-template-hash": "7c9d"}, owners=(owner,))
    item["status"]["initContainerStatuses"] = [{"name": "sidecar", "containerID": "cri-o://" + "aa" * 32}]
    item["status"]["containerStatuses"].append({"name": "waiting", "containerID": ""})
    pod = pod_of(item)
    assert (pod.namespace, pod.name, pod.uid, pod.node) == ("train", "trainer-0", UID, "node-1")
    assert pod.containers == {CONTAINER: "worker", "aa" * 32: "sidecar"}
    assert pod.owners == {
        "k8s.replicaset.name": "web-7c9d",
        "k8s.replicaset.uid": "u1",
        "k8s.deployment.name": "web",
    }
    assert not pod.has_ended


def test_a_static_pod_has_the_uid_that_the_node_uses() -> None:
    assert (
        pod_of(pod_item(annotations={"kubernetes.io/config.mirror": "0123456789abcdef" * 2})).uid
        == "0123456789abcdef" * 2
    )


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_pod_of_a_finished_phase_has_ended(phase: str) -> None:
    assert pod_of(pod_item(phase=phase)).has_ended


def test_a_pod_without_a_status_is_read() -> None:
    item = pod_item()
    item["status"], item["spec"] = None, None
    item["metadata"]["labels"] = item["metadata"]["annotations"] = item["metadata"]["ownerReferences"] = None
    assert pod_of(item).containers == {}


def test_a_long_annotation_is_cut() -> None:
    assert len(pod_of(pod_item(annotations={"a": "x" * 100_000})).annotations["a"]) == 4096
