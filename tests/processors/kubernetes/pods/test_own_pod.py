"""The collector's own pod, from the downward API."""

from pathlib import Path

from otel_zernel_processors.kubernetes.pods.log_folders import pods_with_logs
from otel_zernel_processors.kubernetes.pods.own_pod import own_pod
from otel_zernel_processors.kubernetes.pods.pod import KubernetesPod

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
