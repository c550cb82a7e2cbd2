"""Pods as Kubernetes' API has them."""

from typing import Any

UID = "0a1b2c3d-1111-4222-8333-444455556666"
CONTAINER = "4f" * 32


def pod_item(
    name: str = "trainer-0",
    uid: str = UID,
    *,
    namespace: str = "train",
    node: str = "node-1",
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    owners: tuple[dict[str, str], ...] = (),
    container: str = CONTAINER,
    phase: str = "Running",
) -> dict[str, Any]:
    """The JSON of a pod with one container, named `worker`."""
    return {
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": uid,
            "labels": labels or {},
            "annotations": annotations or {},
            "ownerReferences": list(owners),
        },
        "spec": {"nodeName": node},
        "status": {
            "phase": phase,
            "containerStatuses": [{"name": "worker", "containerID": f"containerd://{container}", "state": {}}],
        },
    }
