"""The rendered pods name pods: from the kubelet, from Kubernetes' API and from the downward API."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.deploy.helm.node_folders import GPU, NodeFolders
from tests.deploy.helm.pods import NODE, ApiServer, running_pod
from tests.deploy.helm.rendering import only, render_mode
from tests.deploy.helm.test_running import answer, end_as_the_kubelet_does, free_address, until_serving
from tests.exporters.otlp.certificates import Authority, CertificateFiles
from tests.libraries.clients.kubernetes.cluster import FakeCluster
from tests.libraries.clients.serving import served
from tests.processors.kubernetes.gpus.kubelet import allocated
from tests.processors.kubernetes.items import UID, pod_item

JOB = {"jobset.sigs.k8s.io/jobset-name": "llama", "team": "nlp"}
TOKEN = "correct-horse"
OTLP = json.dumps({"receivers": {"otlp": {"protocols": {"http": {"endpoint": "${env:MY_POD_IP}:4318"}, "grpc": None}}}})
"""The receiver of a sidecar listens on localhost, which is the machine's here."""


def credentials(folder: Path) -> tuple[CertificateFiles, Path]:
    """The certificate of an API server, and the folder of a service account."""
    account = folder / "account"
    account.mkdir(parents=True)
    authority = Authority(folder)
    for name, content in (("token", TOKEN), ("namespace", "ml"), ("ca.crt", Path(authority.ca_file).read_text())):
        (account / name).write_text(content)
    return authority.issue("kubernetes"), account


@asynccontextmanager
async def api_server(folder: Path) -> AsyncIterator[tuple[FakeCluster, ApiServer]]:
    """An API server over TLS that asks for the service account's token. It has one pod of the node."""
    files, account = credentials(folder)
    cluster = FakeCluster()
    cluster.token = TOKEN
    cluster.put_pod(pod_item(node=NODE, labels=JOB))
    async with served(cluster, ssl_certfile=files.cert_file, ssl_keyfile=files.key_file) as port:
        yield cluster, ApiServer(port, account)


def requested(cluster: FakeCluster) -> set[tuple[str, str]]:
    """The resources that were asked for, with the verbs of a role."""
    assert not [name for name in cluster.requests if not name.startswith("GET ")]
    return {(path, "watch" if "watch" in query else "list") for path, query in cluster.queries}


async def test_the_daemonsets_pod_names_the_pods_and_jobs_of_gpus_and_asks_only_for_what_its_role_allows(
    root: Path, tmp_path: Path
) -> None:
    manifests, ip = render_mode("daemonset-gpu-pods", presets__kubernetes__api="true"), free_address()
    node = NodeFolders(tmp_path / "node")
    node.kubelet.pods.append(allocated("trainer-0", GPU))
    async with node.kubelet.serving(), api_server(tmp_path / "api") as (cluster, api):
        with running_pod(manifests, ip, root, tmp_path, node.volumes, api) as process:
            wanted = (
                rf'zernel_gpu_pod_info{{[^}}]*hw_id="{GPU}"[^}}]*k8s_pod_name="trainer-0"[^}}]*job_id="train/llama"'
            )
            await asyncio.to_thread(until_serving, process, f"http://{ip}:9091/metrics", wanted)
            assert (await asyncio.to_thread(end_as_the_kubelet_does, process, 30))[0] == 0
    (rule,) = only(manifests, "ClusterRole")["rules"]
    assert requested(cluster) == {("/api/v1/pods", verb) for verb in rule["verbs"]}
    assert {query["fieldSelector"] for _, query in cluster.queries} == {f"spec.nodeName={NODE}"}


async def test_only_root_can_open_the_kubelets_socket(root: Path, tmp_path: Path) -> None:
    """The reason why the chart gives the container this user. The capabilities of eBPF do not replace it."""
    manifests, ip = render_mode("daemonset", securityContext='{"runAsUser": 10001}'), free_address()
    node = NodeFolders(tmp_path / "node")
    async with node.kubelet.serving():
        with running_pod(manifests, ip, root, tmp_path, node.volumes) as process:
            failure = r'zernel_kubernetes_failures{[^}]*zernel_source="pod_resources"'
            await asyncio.to_thread(until_serving, process, f"http://{ip}:8888/metrics", failure)
            assert (await asyncio.to_thread(end_as_the_kubelet_does, process, 30))[0] == 0
    assert node.kubelet.calls == 0


async def test_the_gateways_pod_names_the_pods_of_all_nodes(root: Path, tmp_path: Path) -> None:
    changes = {"presets__prometheus__enabled": "true", "otlp__endpoint": '""'}
    manifests, ip = render_mode("gateway-api", **changes), free_address()
    async with api_server(tmp_path / "api") as (cluster, api):
        cluster.put_pod(pod_item("elsewhere-0", "another-uid", node="node-8", labels={"team": "vision"}))
        with running_pod(manifests, ip, root, tmp_path, {}, api) as process:
            await asyncio.to_thread(until_serving, process, f"http://{ip}:13133/", "Server available")
            for uid in (UID, "another-uid"):
                assert await asyncio.to_thread(send_point, ip, {"k8s.pod.uid": uid})
            page = f"http://{ip}:9091/metrics"
            await asyncio.to_thread(until_serving, process, page, r'm{[^}]*k8s_pod_name="elsewhere-0"')
            await asyncio.to_thread(until_serving, process, page, r'm{[^}]*job_id="train/llama"')
            await asyncio.to_thread(until_serving, process, page, r'target_info{[^}]*k8s_pod_label_team="vision"')
            assert (await asyncio.to_thread(end_as_the_kubelet_does, process, 30))[0] == 0
    assert {path for path, _ in cluster.queries} == {"/api/v1/pods"}
    assert {query.get("fieldSelector") for _, query in cluster.queries} == {None}


def test_a_sidecar_names_its_own_pod_and_job(root: Path, tmp_path: Path) -> None:
    manifests, ip = render_mode("sidecar-labels", config=OTLP), free_address()
    info = tmp_path / "podinfo"
    info.mkdir()
    (info / "labels").write_text("".join(f'{key}="{value}"\n' for key, value in JOB.items()))
    (info / "annotations").write_text('run="7"\n')
    with running_pod(manifests, ip, root, tmp_path, {"podinfo-otel-zernel": info}) as process:
        until_serving(process, f"http://{ip}:13133/", "Server available")
        assert send_point(ip, {})
        page = until_serving(process, f"http://{ip}:9091/metrics", r'target_info{[^}]*k8s_pod_name="run-x"')
        assert end_as_the_kubelet_does(process, 30)[0] == 0
    for label in ('k8s_namespace_name="ml"', 'zernel_job_id="ml/llama"', f'k8s_node_name="{NODE}"', 'job="llama"'):
        assert label in page
    for label in ('k8s_pod_label_team="nlp"', 'k8s_pod_annotation_run="7"'):
        assert label in page


def send_point(ip: str, resource: dict[str, str]) -> str:
    """Sends a metric of a program without a name. The result is the answer, empty if there is none."""
    resource = {"service.name": "unknown_service:python", **resource}
    attributes = [{"key": key, "value": {"stringValue": value}} for key, value in resource.items()]
    metric = {"name": "m", "gauge": {"dataPoints": [{"asInt": "7", "timeUnixNano": str(time.time_ns())}]}}
    scope = {"resource": {"attributes": attributes}, "scopeMetrics": [{"metrics": [metric]}]}
    return answer(f"http://{ip}:4318/v1/metrics", json.dumps({"resourceMetrics": [scope]}).encode())
