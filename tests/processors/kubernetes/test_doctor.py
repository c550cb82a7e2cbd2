"""`otel-zernel doctor` says which sources of names work."""

from pathlib import Path

from otel_zernel_processors.kubernetes.config import KubernetesProcessorConfig
from otel_zernel_processors.kubernetes.doctor import findings
from tests.libraries.clients.kubernetes.kubeconfig import write_kubeconfig

OWN = {"K8S_NODE_NAME": "node-1", "K8S_NAMESPACE": "train", "K8S_POD_NAME": "trainer-0"}


def examined(environ: dict[str, str], **options: object) -> list[tuple[str, bool | None, str]]:
    config = KubernetesProcessorConfig.model_validate(options)
    return [(finding.topic, finding.ok, finding.text) for finding in findings(config, environ)]


def test_a_complete_node_has_only_good_findings(tmp_path: Path) -> None:
    (tmp_path / "logs" / "train_trainer-0_u1").mkdir(parents=True)
    (tmp_path / "labels").write_text('app="x"\n', "utf-8")
    (tmp_path / "kubelet.sock").touch()
    write_kubeconfig(tmp_path / "kubeconfig", "https://server:6443", {"token": "secret"})
    found = examined(
        OWN,
        pod_logs=str(tmp_path / "logs"),
        pod_resources={"socket": str(tmp_path / "kubelet.sock")},
        api={"kubeconfig": str(tmp_path / "kubeconfig")},
    )
    assert [(topic, ok) for topic, ok, _ in found] == [
        ("node", True),
        ("pod logs", True),
        ("API server", True),
        ("pod resources", True),
    ]
    assert "secret" not in str(found)


def test_each_missing_source_says_what_to_do(tmp_path: Path) -> None:
    missing = str(tmp_path / "missing")
    found = examined({}, pod_logs=missing, pod_resources={"socket": f"{missing}/kubelet.sock"}, api={})
    assert all(ok is False for _, ok, _ in found)
    texts = {topic: text for topic, _, text in found}
    assert "set K8S_NODE_NAME" in texts["node"]
    assert "mount it, or set pod_logs to null" in texts["pod logs"]
    assert "set kubeconfig to a file" in texts["API server"]
    assert "mount it from the node" in texts["pod resources"]


def test_a_sidecar_needs_its_own_names_alone(tmp_path: Path) -> None:
    (tmp_path / "labels").write_text('app="x"\n', "utf-8")
    assert examined(OWN, own_pod=True, pod_info=str(tmp_path)) == [
        ("node", True, "the collector runs on node-1"),
        ("own pod", True, "train/trainer-0 with its labels"),
    ]
    [_, (topic, ok, text)] = examined({}, own_pod=True)
    assert (topic, ok) == ("own pod", False)
    assert "by the downward API" in text
