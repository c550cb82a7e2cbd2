"""The rendered pods do their work: they see a real PyTorch job by eBPF, and drain before the kubelet kills them."""

import asyncio
import importlib.util
import json
import re
import signal
import time
from pathlib import Path
from subprocess import Popen
from urllib.request import Request, urlopen

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from tests.deploy.helm.node_folders import GPU, NodeFolders
from tests.deploy.helm.pods import NODE, running_pod
from tests.deploy.helm.rendering import Manifest, container, pod_spec, render_mode
from tests.exporters.otlp.peers import GrpcSink
from tests.free_ports import free_port
from tests.interop.installed import miss
from tests.processors.kubernetes.gpus.kubelet import allocated

WAIT = 120.0


def answer(url: str, body: bytes | None = None) -> str:
    """The body of the answer; empty if nobody listens."""
    try:
        with urlopen(Request(url, body, {"Content-Type": "application/json"}), timeout=30) as got:
            return str(got.read(), "utf-8")
    except OSError:
        return ""


def until_serving(process: "Popen[str]", url: str, wanted: str, job: "Popen[bytes] | None" = None) -> str:
    """The page as soon as it contains the pattern."""
    end = time.monotonic() + WAIT
    while not re.search(wanted, page := answer(url)):
        if process.poll() is not None or time.monotonic() > end:
            process.kill()
            pytest.fail(f"{wanted} is not in {page[-2000:]}; log: {process.stdout.read() if process.stdout else ''}")
        assert job is None or job.poll() is None, "the job has ended"
        time.sleep(0.2)
    return page


def free_address() -> str:
    """An address of this machine on which nobody listens: ports of the chart are fixed."""
    port = free_port()
    return f"127.{port >> 8}.{port & 255}.1"


def end_as_the_kubelet_does(process: "Popen[str]", grace: float) -> tuple[int, str]:
    """SIGTERM, and SIGKILL after the grace period, which fails the test."""
    process.send_signal(signal.SIGTERM)
    text, _ = process.communicate(timeout=grace)
    return process.returncode, text


def time_for_a_stop(spec: Manifest) -> float:
    """Seconds from SIGTERM to SIGKILL: the grace period includes the sleep."""
    (one,) = spec["containers"]
    sleep: float = one["lifecycle"]["preStop"]["sleep"]["seconds"]
    return float(spec["terminationGracePeriodSeconds"]) - sleep


@pytest.mark.parametrize("user", [10001, 0])
async def test_the_daemonsets_pod_sees_the_steps_of_a_real_job_and_names_its_pod(
    user: int, root: Path, tmp_path: Path
) -> None:
    """It runs as root only for the kubelet's socket, and then has the same capabilities."""
    if not importlib.util.find_spec("torch"):
        miss("PyTorch is missing: `make peers REQUIRE_PEERS=1` installs it")
    changes = {"presets__nvml__enabled": "false", "presets__kubernetes__podResources": "false" if user else "true"}
    manifests, ip = render_mode("daemonset", **changes), free_address()
    assert container(manifests)["securityContext"].get("runAsUser", 10001) == user
    node = NodeFolders(tmp_path / "node")
    node.kubelet.pods.append(allocated("trainer-0", GPU))
    async with node.kubelet.serving():
        with running_pod(manifests, ip, root, tmp_path, node.volumes) as process, node.running_job("trainer-0") as job:
            try:
                await asyncio.to_thread(until_serving, process, f"http://{ip}:13133/", "Server available")
                steps = rf'zernel_steps_total{{[^}}]*pid="{job.pid}"'
                for wanted in (steps, *([] if user else ["zernel_gpu_pod_info{"])):
                    page = await asyncio.to_thread(until_serving, process, f"http://{ip}:9091/metrics", wanted, job)
            finally:
                job.kill()
            status, _ = await asyncio.to_thread(end_as_the_kubelet_does, process, time_for_a_stop(pod_spec(manifests)))
    lines = re.findall(rf'^zernel_steps_total{{[^}}]*pid="{job.pid}".*', page, re.MULTILINE)
    for label in (f'host_name="{NODE}"', 'k8s_namespace_name="train"', 'k8s_pod_name="trainer-0"'):
        assert [line for line in lines if label not in line] == []
    assert ("zernel_gpu_pod_info{" in page) is (user == 0)
    assert status == 0


async def test_the_gateways_pod_delivers_its_queue_before_it_is_killed(root: Path, tmp_path: Path) -> None:
    """The backend is down until the pod is asked to stop."""
    port, ip = free_port(), free_address()
    manifests = render_mode("gateway", otlp__endpoint=f'"http://127.0.0.1:{port}"')
    point = '{"name":"m","gauge":{"dataPoints":[{"asInt":"7","timeUnixNano":"1700000000000000000"}]}}'
    body = f'{{"resourceMetrics":[{{"scopeMetrics":[{{"metrics":[{point}]}}]}}]}}'.encode()
    with running_pod(manifests, ip, root, tmp_path, {}) as process:
        until_serving(process, f"http://{ip}:13133/", "Server available")
        for _ in range(10):
            assert answer(f"http://{ip}:4318/v1/metrics", body)
        sink = GrpcSink()
        async with sink.serve(port=port, host="127.0.0.1"):
            seconds = time_for_a_stop(pod_spec(manifests))
            status, log = await asyncio.to_thread(end_as_the_kubelet_does, process, seconds)
    assert status == 0, log
    # What waited for its turn is joined into fewer requests.
    received = [MetricsData.FromString(request) for request in sink.requests]
    resources = [resource for data in received for resource in data.resource_metrics]
    metrics = [metric for resource in resources for scope in resource.scope_metrics for metric in scope.metrics]
    assert sum(len(metric.gauge.data_points) for metric in metrics) == 10


@pytest.mark.parametrize("mode", ["gateway", "sidecar"])
def test_the_pods_of_other_modes_serve_as_a_user_without_any_right(mode: str, root: Path, tmp_path: Path) -> None:
    otlp = {name: {"endpoint": f"${{env:MY_POD_IP}}:{port}"} for name, port in (("grpc", 4317), ("http", 4318))}
    changes = json.dumps({"receivers": {"otlp": {"protocols": otlp}}})  # localhost is the machine's here
    manifests, ip = render_mode(mode, config=changes), free_address()
    with running_pod(manifests, ip, root, tmp_path, {}) as process:
        until_serving(process, f"http://{ip}:13133/", "Server available")
        until_serving(process, f"http://{ip}:8888/metrics", "otelcol_process_uptime")
        assert end_as_the_kubelet_does(process, 30)[0] == 0
