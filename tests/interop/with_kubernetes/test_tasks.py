"""Tasks as Jobs of a real Kubernetes: one that cannot make its pod says why."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.extensions.tasks.running import running
from tests.interop.kubernetes import Kubernetes, running_kubernetes

pytestmark = pytest.mark.soak

NAMESPACE = "train"
RIGHTS = [
    {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["create", "get", "list", "watch", "delete"]},
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]},
    {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]},
    {"apiGroups": [""], "resources": ["events"], "verbs": ["list"]},
]
"""Those in the README."""


def grant(kubernetes: Kubernetes) -> str:
    """The token of an account with the rights of the README."""
    group = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}"
    kubernetes.call("POST", f"{group}/roles", {"metadata": {"name": "tasks"}, "rules": RIGHTS})
    subjects = [{"kind": "ServiceAccount", "name": "default", "namespace": NAMESPACE}]
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "tasks"}
    body = {"metadata": {"name": "tasks"}, "roleRef": role, "subjects": subjects}
    kubernetes.call("POST", f"{group}/rolebindings", body)
    return kubernetes.token(NAMESPACE)


async def reason(client: Any, task: str, part: str) -> str:
    """The reason of a task, as soon as it has this part."""
    async with asyncio.timeout(90):
        while part not in (text := (await client.get(task)).get("reason", "")):  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    return str(text)


async def test_a_job_that_cannot_make_its_pod_says_why(tmp_path: Path) -> None:
    with running_kubernetes(tmp_path) as kubernetes:
        kubernetes.make_namespace(NAMESPACE, {"pod-security.kubernetes.io/enforce": "restricted"})
        access = kubernetes.write_kubeconfig(grant(kubernetes), "tasks")
        settings: dict[str, Any] = {"kubeconfig": str(access), "image": "train:1", "namespace": NAMESPACE}
        async with running(tmp_path / "tasks", engine="kubernetes", kubernetes=settings) as client:
            await client.post(id="strict", command=["train"])
            assert 'violates PodSecurity "restricted:latest"' in await reason(client, "strict", "FailedCreate")
        settings |= {"service_account": "missing", "instance": "other"}
        async with running(tmp_path / "others", engine="kubernetes", kubernetes=settings) as client:
            await client.post(id="account", command=["train"])
            assert 'serviceaccount "missing" not found' in await reason(client, "account", "FailedCreate")
