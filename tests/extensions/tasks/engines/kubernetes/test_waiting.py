"""Pods that do not start: the task shows why, and fails if Kubernetes can never start it."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from otel_zernel.testing import until
from tests.extensions.tasks.running import TaskClient, running
from tests.libraries.clients.kubernetes.cluster import FakeCluster
from tests.libraries.clients.kubernetes.kubeconfig import write_kubeconfig
from tests.libraries.clients.serving import served

INVALID = 'Failed to apply default image tag "Train:1": couldn\'t parse image name: repository name must be lowercase'


@pytest.fixture
async def cluster() -> FakeCluster:
    return FakeCluster()


@pytest.fixture
async def client(cluster: FakeCluster, tmp_path: Path) -> AsyncIterator[TaskClient]:
    """A client of a collector that has asked the cluster to run the task `bert`."""
    async with served(cluster) as port:
        write_kubeconfig(tmp_path / "kubeconfig", f"http://127.0.0.1:{port}", {"token": "t0p"})
        settings = {"kubeconfig": str(tmp_path / "kubeconfig"), "image": "train:1"}
        async with running(tmp_path / "tasks", engine="kubernetes", kubernetes=settings) as client:
            await client.post(id="bert", command=["train"])
            await until(lambda: "zernel-bert" in cluster.objects["jobs"], within=60)
            yield client


async def reason(client: TaskClient, part: str) -> dict[str, Any]:
    """The task, as soon as its reason has this part."""
    async with asyncio.timeout(60):
        while part not in (task := await client.get("bert")).get("reason", ""):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    return task


@pytest.mark.parametrize(
    ("error", "message"),
    [
        ("ErrImagePull", 'rpc error: code = NotFound desc = failed to pull image "train:1"'),
        ("ImagePullBackOff", 'Back-off pulling image "train:1"'),
        ("CreateContainerConfigError", 'secret "token" not found'),
    ],
)
async def test_an_error_that_may_pass_is_the_reason_of_a_starting_task(
    client: TaskClient, cluster: FakeCluster, error: str, message: str
) -> None:
    pod = cluster.add_pod("zernel-bert")
    cluster.set_state(pod, "Pending", {"waiting": {"reason": error, "message": message}})
    task = await reason(client, error)
    assert (task["status"], task["reason"]) == ("starting", f"{error}: {message}")
    cluster.run(pod)
    assert "reason" not in await client.reaches("bert", "running")
    cluster.end(pod, 0)
    assert (await client.end("bert"))["status"] == "succeeded"


async def test_an_error_of_an_init_container_is_the_reason(client: TaskClient, cluster: FakeCluster) -> None:
    pod = cluster.add_pod("zernel-bert")
    init = [{"name": "data", "state": {"waiting": {"reason": "ErrImagePull", "message": "no such image"}}}]
    waiting = {"waiting": {"reason": "PodInitializing"}}
    cluster.set_state(pod, "Pending", waiting, initContainerStatuses=init)
    assert (await reason(client, "ErrImagePull"))["reason"] == "ErrImagePull: no such image"


async def test_a_pod_without_a_node_has_the_sentence_of_the_scheduler(client: TaskClient, cluster: FakeCluster) -> None:
    message = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    cluster.add_pod("zernel-bert", conditions=[condition])
    task = await reason(client, "Unschedulable")
    assert (task["status"], task["reason"]) == ("starting", f"Unschedulable: {message}")


def failed_create(message: str, time: str) -> dict[str, Any]:
    return {"type": "Warning", "reason": "FailedCreate", "message": message, "lastTimestamp": time}


async def test_a_job_that_cannot_make_its_pod_has_the_newest_sentence_of_its_controller(
    client: TaskClient, cluster: FakeCluster
) -> None:
    uid = cluster.objects["jobs"]["zernel-bert"]["metadata"]["uid"]
    forbidden = 'forbidden: violates PodSecurity "restricted:latest": runAsNonRoot != true'
    cluster.warnings[uid] = [
        failed_create(f'Error creating: pods "zernel-bert-x7k2p" is {forbidden}', "2026-11-22T10:00:02Z"),
        failed_create('Error creating: pods "zernel-bert-a" is forbidden: exceeded quota', "2026-11-22T10:00:01Z"),
    ]
    task = await reason(client, "FailedCreate")
    assert (task["status"], task["reason"]) == ("starting", f"FailedCreate: the pod is {forbidden}")
    cluster.run(cluster.add_pod("zernel-bert"))
    assert "reason" not in await client.reaches("bert", "running")


async def test_without_the_right_to_list_events_the_reason_names_the_command_that_shows_it(
    client: TaskClient, cluster: FakeCluster
) -> None:
    forbidden = {"kind": "Status", "status": "Failure", "reason": "Forbidden", "code": 403}
    cluster.interfere = lambda method, path: (403, forbidden) if path.endswith("/events") else None
    assert "kubectl describe job zernel-bert" in (await reason(client, "no pod yet"))["reason"]


async def test_an_image_name_that_is_not_valid_fails_the_task_and_frees_its_place(
    client: TaskClient, cluster: FakeCluster
) -> None:
    pod = cluster.add_pod("zernel-bert")
    cluster.set_state(pod, "Pending", {"waiting": {"reason": "InvalidImageName", "message": INVALID}})
    task = await client.end("bert")
    assert (task["status"], task["reason"]) == ("failed", f"InvalidImageName: {INVALID}")
    await until(lambda: "zernel-bert" not in cluster.objects["jobs"], within=60)
    assert (await client.get("bert")) == task
    logs = await client.api.get("/api/tasks/bert/logs?follow=true")
    assert (logs.status, logs.json) == (404, {"error": f"the task never started: InvalidImageName: {INVALID}"})
