"""Processes get the names of their pods, containers and jobs."""

import asyncio
import os
from pathlib import Path

import pytest

from otel_zernel.errors import CannotStart
from otel_zernel.otlp.points import AttributeValue
from otel_zernel.testing import until
from tests.processors.kubernetes.items import CONTAINER, UID, pod_item
from tests.processors.kubernetes.node import GROUP, Node, added, batch_with, named, of_process

JOBSET = {"jobset.sigs.k8s.io/jobset-name": "llama", "app": "llm", "team/cost": "9"}


async def test_without_any_right_in_kubernetes_a_process_gets_its_pod_and_its_container(node: Node) -> None:
    node.add_logs()
    resource = of_process(7, node.proc.add(7, cgroup=GROUP, pod=UID, container="worker"))
    async with node.processor() as processor:
        [found] = await named(processor, resource)
    assert added(resource, found) == {
        "k8s.namespace.name": "train",
        "k8s.pod.name": "trainer-0",
        "k8s.pod.uid": UID,
        "k8s.container.name": "worker",
        "container.id": CONTAINER,
        "k8s.node.name": "node-1",
    }


async def test_the_api_adds_owners_labels_and_the_job(node: Node) -> None:
    owner = {"kind": "Job", "name": "llama-worker-0", "uid": "j1"}
    node.cluster.put_pod(pod_item(labels=JOBSET, annotations={"note": "x"}, owners=(owner,)))
    resource = of_process(7, node.proc.add(7, cgroup=GROUP), service__name="unknown_service:python")
    async with node.watching(labels=["app", "team/*"], annotations=["no*"]) as processor:
        [found] = await named(processor, resource)
    assert added(resource, found) == {
        "k8s.namespace.name": "train",
        "k8s.pod.name": "trainer-0",
        "k8s.pod.uid": UID,
        "k8s.container.name": "worker",
        "container.id": CONTAINER,
        "k8s.node.name": "node-1",
        "k8s.job.name": "llama-worker-0",
        "k8s.job.uid": "j1",
        "zernel.job.id": "train/llama",
        "k8s.pod.label.app": "llm",
        "k8s.pod.label.team/cost": "9",
        "k8s.pod.annotation.note": "x",
        "service.name": "llama",
    }


async def test_a_named_job_stays_and_a_launchers_id_gives_way(node: Node) -> None:
    node.cluster.put_pod(pod_item(labels=JOBSET))
    environments: dict[int, dict[str, str] | None] = {
        1: {"SLURM_JOB_ID": "4711"},
        2: {"TORCHELASTIC_RUN_ID": "f00"},
        3: {"MASTER_ADDR": "trainer-0", "MASTER_PORT": "29500"},
        4: None,
    }
    resources = [
        of_process(pid, node.proc.add(pid, cgroup=GROUP, environment=environment), zernel__job__id=f"before-{pid}")
        for pid, environment in environments.items()
    ]
    async with node.watching() as processor:
        found = await named(processor, *resources)
    assert [one["zernel.job.id"] for one in found] == ["before-1", "train/llama", "train/llama", "before-4"]


async def test_the_name_of_a_ray_cluster_replaces_no_other_id(node: Node) -> None:
    """Many jobs run on it."""
    node.cluster.put_pod(pod_item(labels={"ray.io/cluster": "shared"}))
    created = node.proc.add(7, cgroup=GROUP, environment={"MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "1"})
    async with node.watching() as processor:
        found = await named(processor, of_process(7, created, zernel__job__id="10.0.0.1:1"), of_process(7, created))
    assert [one["zernel.job.id"] for one in found] == ["10.0.0.1:1", "train/shared"]


async def test_existing_attributes_and_other_processes_stay_as_they_are(node: Node) -> None:
    node.add_logs()
    created = node.proc.add(7, cgroup=GROUP, pod=UID, container="worker")
    here = node.proc.add(8, cgroup="/user.slice")
    mine = of_process(7, created, **{"k8s.container.name": "mine"})
    others: list[dict[str, AttributeValue]] = [
        {**of_process(7, created), "host.name": "node-2"},
        of_process(7, "2020-01-01T00:00:00+00:00"),
        {"host.name": "node-1", "process.pid": 7},
        {"service.name": "checkout"},
    ]
    async with node.processor() as processor:
        found = await named(processor, mine, *others, of_process(8, here))
    assert found[0]["k8s.container.name"] == "mine"
    for resource, after in zip([*others, of_process(8, here)], found[1:], strict=True):
        assert added(resource, after).keys() <= {"k8s.node.name"}
    assert "k8s.node.name" not in found[1]


async def test_a_batch_without_a_change_is_forwarded_as_the_bytes_that_arrived(tmp_path: Path) -> None:
    batch = batch_with({"service.name": "checkout"})
    before = batch.bytes_of("metrics")
    async with Node(tmp_path).processor() as processor:
        await processor.prepare(batch)
        [after] = processor.process(batch)
    assert after is batch
    assert after.bytes_of("metrics") is before


async def test_data_that_names_a_pod_gets_its_job_wherever_it_comes_from(node: Node) -> None:
    """Such as series of dcgm-exporter, and spans of an SDK."""
    node.cluster.put_pod(pod_item(labels=JOBSET))
    resources = [
        {"k8s.namespace.name": "train", "k8s.pod.name": "trainer-0"},
        {"k8s.pod.uid": UID},
        {"container.id": CONTAINER},
        {"k8s.pod.name": "trainer-0"},
        {"k8s.pod.uid": "another"},
    ]
    async with node.watching() as processor:
        found = await named(processor, *resources)
    assert [one.get("zernel.job.id") for one in found] == ["train/llama"] * 3 + [None, None]
    assert found[2]["k8s.pod.name"] == "trainer-0"


async def test_a_pod_that_is_gone_keeps_its_name_until_its_last_points_are_out(node: Node) -> None:
    node.cluster.put_pod(pod_item(labels=JOBSET))
    resource = of_process(7, node.proc.add(7, cgroup=GROUP))
    async with node.watching() as processor:
        before = await named(processor, resource)
        node.cluster.delete("pods", UID)
        node.proc.end(7)
        await until(lambda: processor._table._gone)
        assert await named(processor, resource) == before


async def test_a_changed_label_shows_in_the_next_batch(node: Node) -> None:
    node.cluster.put_pod(pod_item(labels={"app": "one"}))
    resource = of_process(7, node.proc.add(7, cgroup=GROUP))
    async with node.watching(labels=["*"]) as processor:
        assert (await named(processor, resource))[0]["k8s.pod.label.app"] == "one"
        version = processor._table.version
        node.cluster.put_pod(pod_item(labels={"app": "two"}))
        await until(lambda: processor._table.version > version)
        assert (await named(processor, resource))[0]["k8s.pod.label.app"] == "two"


async def test_only_the_pods_of_this_node_are_watched_unless_all_are_wanted(node: Node) -> None:
    node.cluster.put_pod(pod_item())
    node.cluster.put_pod(pod_item("elsewhere", "u2", node="node-2"))
    async with node.watching() as processor:
        assert processor._table.by_name("train", "trainer-0")
        assert processor._table.by_name("train", "elsewhere") is None
    assert {query.get("fieldSelector") for path, query in node.cluster.queries} == {"spec.nodeName=node-1"}


async def test_names_survive_a_reload_of_the_processor(node: Node) -> None:
    node.add_logs()
    resource = of_process(7, node.proc.add(7, cgroup=GROUP, pod=UID, container="worker"))
    async with node.processor() as processor:
        before = await named(processor, resource)
    node.proc.end(7)
    (node.logs / f"train_trainer-0_{UID}").rmdir()
    async with node.processor(retention="1m") as processor:
        assert await named(processor, resource) == before


async def test_the_api_server_may_be_away_and_the_health_says_so(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("otel_zernel_processors.kubernetes.sources._FIRST_LIST", 0.1)
    node.add_logs()
    node.cluster.interfere = lambda method, path: (403, {"kind": "Status", "message": 'User "x" cannot list pods'})
    resource = of_process(7, node.proc.add(7, cgroup=GROUP))
    async with node.watching() as processor:
        [found] = await named(processor, resource)
        assert found["k8s.pod.name"] == "trainer-0", "from the folders of logs"
        assert "zernel.job.id" not in found
        assert "cannot list pods; grant the permissions" in node.context.health.problems["processors::kubernetes"]
        node.cluster.interfere = lambda method, path: None
        node.cluster.put_pod(pod_item(labels=JOBSET))
        await until(lambda: processor._table.by_uid(UID) and processor._table.by_uid(UID).labels)  # type: ignore[union-attr]
        assert node.context.health.problems == {}
        assert (await named(processor, resource))[0]["zernel.job.id"] == "train/llama"


async def test_rights_that_are_withdrawn_from_a_running_watch_are_named_at_once(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("otel_zernel_processors.kubernetes.sources._UPKEEP", 3600.0)
    async with node.watching():
        await until(lambda: node.cluster.requests["GET watch"])
        node.cluster.interfere = lambda method, path: (403, {"kind": "Status", "message": 'User "x" cannot list pods'})
        node.cluster.cut_watches()
        await until(lambda: "grant the permissions" in node.context.health.problems.get("processors::kubernetes", ""))
        node.cluster.interfere = lambda method, path: None
        await until(lambda: node.context.health.problems == {})


async def test_a_server_that_accepts_a_watch_and_does_not_answer_is_named(node: Node) -> None:
    async with node.watching(request_timeout="200ms"):
        await until(lambda: node.cluster.requests["GET watch"])
        node.cluster.watches_hang = True
        node.cluster.cut_watches()
        await until(lambda: "gives no answer" in node.context.health.problems.get("processors::kubernetes", ""))
        node.cluster.watches_hang = False
        await until(lambda: node.context.health.problems == {})


async def test_a_pod_whose_folder_of_logs_appears_later_is_named_then(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("otel_zernel_processors.kubernetes.sources._NEXT_LISTING", 0.0)
    resource = of_process(7, node.proc.add(7, cgroup=GROUP, pod=UID, container="worker"))
    async with node.processor() as processor:
        [found] = await named(processor, resource)
        assert found["k8s.pod.uid"] == UID
        assert "k8s.pod.name" not in found
        node.add_logs()
        assert (await named(processor, resource))[0]["k8s.pod.name"] == "trainer-0"


async def test_a_process_that_is_stuck_in_the_kernel_is_reported_and_holds_up_no_batch(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("otel_zernel_processors.kubernetes.sources._HANGS", 0.0)
    resource = of_process(7, node.proc.add(7, cgroup=GROUP))
    stuck = node.proc.folder / "7" / "environ"
    os.mkfifo(stuck)  # opening it waits for a writer
    async with node.processor() as processor:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(named(processor, resource), 0.1)
        [found] = await named(processor, resource)
        assert "container.id" not in found
        assert "hangs" in node.context.health.problems["processors::kubernetes"]
        with stuck.open("wb") as writer:
            writer.write(b"A=b\0")
        await until(lambda: not processor._sources._reader.hangs)
        stuck.unlink()
        [found] = await named(processor, resource)
        assert found["container.id"] == CONTAINER


async def test_a_sidecar_names_its_own_pod_without_any_right(node: Node, tmp_path: Path) -> None:
    (tmp_path / "labels").write_text('jobset.sigs.k8s.io/jobset-name="llama"\nteam="nlp"\n', "utf-8")
    environ = {"K8S_NAMESPACE": "train", "K8S_POD_NAME": "trainer-0", "K8S_POD_UID": UID, "K8S_NODE_NAME": "node-1"}
    options = {"own_pod": True, "pod_info": str(tmp_path), "labels": ["team"]}
    async with node.processor(environ, **options) as processor:
        found = await named(processor, {}, {"service.name": "unknown_service"}, {"k8s.pod.name": "other"})
    assert found[0] == {
        "k8s.namespace.name": "train",
        "k8s.pod.name": "trainer-0",
        "k8s.pod.uid": UID,
        "k8s.node.name": "node-1",
        "zernel.job.id": "train/llama",
        "k8s.pod.label.team": "nlp",
    }
    assert found[1] == {**found[0], "service.name": "llama"}
    assert found[2] == {"k8s.pod.name": "other"}


@pytest.mark.parametrize(
    ("options", "environ", "sentence"),
    [
        ({"own_pod": True}, {}, r"own_pod: the collector's pod is not known; set K8S_NAMESPACE"),
        ({"api": {}, "node": None}, {}, r"node: the name of the collector's node is not known"),
        ({"api": {}}, {}, r"api::kubeconfig: the collector does not run in a pod"),
    ],
)
async def test_a_missing_prerequisite_is_one_sentence_at_the_start(
    options: dict[str, object], environ: dict[str, str], sentence: str, tmp_path: Path
) -> None:
    processor = Node(tmp_path).processor(environ, **options)
    with pytest.raises(CannotStart, match=sentence):
        await processor.__aenter__()
    await processor.__aexit__(None, None, None)


def test_labels_without_a_source_are_a_mistake_of_the_configuration(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="labels need a source"):
        Node(tmp_path).processor(labels=["app"])
