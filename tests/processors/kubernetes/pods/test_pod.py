"""A pod from its JSON.

The job of a pod, by the labels of each operator.

The collector's own pod, from the downward API.
"""

from pathlib import Path
from typing import Any

import pytest

from otel_zernel_processors.kubernetes.pods.local_pods import own_pod, pods_with_logs
from otel_zernel_processors.kubernetes.pods.pod import KubernetesPod, job_of, pod_of
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


@pytest.mark.parametrize(
    ("labels", "id_", "attributes"),
    [
        ({"batch.kubernetes.io/job-name": "fit", "batch.kubernetes.io/job-completion-index": "3"}, "train/fit",
         {"zernel.job.index": 3}),
        ({"job-name": "old"}, "train/old", {}),
        ({"jobset.sigs.k8s.io/jobset-name": "llama", "jobset.sigs.k8s.io/replicatedjob-name": "worker",
          "jobset.sigs.k8s.io/restart-attempt": "2", "batch.kubernetes.io/job-name": "llama-worker-0",
          "batch.kubernetes.io/job-completion-index": "1", "kueue.x-k8s.io/queue-name": "research"}, "train/llama",
         {"zernel.job.replica": "worker", "zernel.job.index": 1, "zernel.job.attempt": 2,
          "zernel.job.queue": "research"}),
        ({"training.kubeflow.org/job-name": "bert", "training.kubeflow.org/replica-type": "master",
          "training.kubeflow.org/replica-index": "0"}, "train/bert",
         {"zernel.job.replica": "master", "zernel.job.index": 0}),
        ({"volcano.sh/job-name": "v", "volcano.sh/task-spec": "gpu", "volcano.sh/task-index": "7"}, "train/v",
         {"zernel.job.replica": "gpu", "zernel.job.index": 7}),
        ({"ray.io/originated-from-cr-name": "rayjob", "ray.io/cluster": "rayjob-raycluster-x", "ray.io/group": "gpus"},
         "train/rayjob", {"zernel.job.replica": "gpus"}),
        ({"leaderworkerset.sigs.k8s.io/name": "lws", "leaderworkerset.sigs.k8s.io/worker-index": "1"}, "train/lws",
         {"zernel.job.index": 1}),
        ({"scheduler.slinky.slurm.net/slurm-jobid": "4711", "job-name": "x"}, "4711", {}),
        ({"app": "web"}, "", None),
        ({"job-name": "x", "batch.kubernetes.io/job-completion-index": "many"}, "train/x", {}),
    ],
)  # fmt: skip
def test_the_widest_job_of_a_pod_is_named_with_its_namespace(
    labels: dict[str, str], id_: str, attributes: dict[str, Any] | None
) -> None:
    job = job_of(labels, {}, "train")
    assert job.id == id_
    assert job.attributes == attributes


def test_the_index_of_an_older_job_is_an_annotation() -> None:
    job = job_of({"job-name": "x"}, {"batch.kubernetes.io/job-completion-index": "4"}, "train")
    assert job.attributes == {"zernel.job.index": 4}


@pytest.mark.parametrize(
    ("labels", "is_one"),
    [
        ({"ray.io/originated-from-cr-name": "x", "ray.io/originated-from-crd": "RayJob"}, True),
        ({"ray.io/originated-from-cr-name": "x", "ray.io/originated-from-crd": "RayCluster"}, False),
        ({"ray.io/cluster": "x"}, False),
        ({"leaderworkerset.sigs.k8s.io/name": "x"}, False),
        ({"job-name": "x"}, True),
        ({"scheduler.slinky.slurm.net/slurm-jobid": "1", "ray.io/cluster": "x"}, True),
    ],
)
def test_what_may_run_several_trainings_is_no_single_job(labels: dict[str, str], is_one: bool) -> None:
    assert job_of(labels, {}, "train").is_one is is_one


NAMED = {"K8S_NAMESPACE": "train", "K8S_POD_NAME": "trainer-0", "K8S_POD_UID": "u1", "K8S_NODE_NAME": "node-1"}


def test_variables_name_the_pod_and_files_have_its_labels(tmp_path: Path) -> None:
    (tmp_path / "labels").write_text('app="trainer"\njobset.sigs.k8s.io/jobset-name="llama"', "utf-8")
    (tmp_path / "annotations").write_text(r'note="a \"word\"\nand \\ and \u00e9 and \x07"' + '\nempty=""\n', "utf-8")
    pod = own_pod(NAMED, tmp_path)
    assert pod
    assert (pod.namespace, pod.name, pod.uid, pod.node) == ("train", "trainer-0", "u1", "node-1")
    assert pod.labels == {"app": "trainer", "jobset.sigs.k8s.io/jobset-name": "llama"}
    assert pod.job.id == "train/llama"
    assert pod.annotations == {"note": 'a "word"\nand \\ and é and \x07', "empty": ""}


def test_a_pod_without_files_is_named_and_one_without_variables_is_not(tmp_path: Path) -> None:
    assert own_pod(NAMED, tmp_path) == KubernetesPod("train", "trainer-0", "u1", "node-1")
    assert own_pod({"K8S_NAMESPACE": "train"}, tmp_path) is None


def test_the_folders_of_logs_name_pods(tmp_path: Path) -> None:
    for name in ("train_trainer-0_u1", "kube-system_etcd-node_0123", "other"):
        (tmp_path / name).mkdir()
    assert sorted(pods_with_logs(tmp_path), key=lambda pod: pod.uid) == [
        KubernetesPod("kube-system", "etcd-node", "0123"),
        KubernetesPod("train", "trainer-0", "u1"),
    ]
