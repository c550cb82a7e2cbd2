"""The preset kubernetes: the processor's place and options, and the folders of the node that it needs."""

import json

import pytest

from otel_zernel_processors.kubernetes.config import KubernetesProcessorConfig
from tests.deploy.helm.rendering import CHART, Manifest, config, container, pod_spec, render, render_mode

LOGS, SOCKET = "pod-logs", "pod-resources"
PROCESSOR = KubernetesProcessorConfig()


def example(name: str) -> list[Manifest]:
    return render(CHART / f"ci/{name}-values.yaml")


def processors(manifests: list[Manifest]) -> list[str]:
    (pipeline,) = config(manifests)["service"]["pipelines"].values()
    found: list[str] = pipeline["processors"]
    return found


def folders(manifests: list[Manifest]) -> dict[str, tuple[str, str]]:
    """The folders of the node by volume, with their places in the container. All are read-only."""
    mounts = {one["name"]: one for one in container(manifests)["volumeMounts"]}
    found = {one["name"]: one["hostPath"] for one in pod_spec(manifests)["volumes"] if "hostPath" in one}
    assert all(mounts[name]["readOnly"] for name in found)
    return {name: (one["path"], mounts[name]["mountPath"]) for name, one in found.items()}


@pytest.mark.parametrize(
    ("values", "options", "mounted"),
    [
        ("daemonset", {"pod_resources": {}}, {LOGS, SOCKET}),
        ("daemonset-without-root", {}, {LOGS}),
        ("daemonset-gpu-pods", {"pod_resources": {}}, {LOGS, SOCKET}),
        (
            "daemonset-api",
            {"pod_resources": {}, "api": {}, "labels": ["app.kubernetes.io/*", "team"], "annotations": ["run"]},
            {LOGS, SOCKET},
        ),
        ("gateway-api", {"pod_logs": None, "api": {"nodes": "all"}, "labels": ["team"]}, set()),
        ("sidecar", {"pod_logs": None, "own_pod": True}, set()),
        ("sidecar-ebpf", {"pod_logs": None, "own_pod": True}, set()),
        ("sidecar-labels", {"pod_logs": None, "own_pod": True, "labels": ["*"], "annotations": ["run"]}, set()),
    ],
)
def test_each_mode_reads_the_pods_that_it_can(values: str, options: dict[str, object], mounted: set[str]) -> None:
    manifests = example(values)
    assert config(manifests)["processors"]["kubernetes"] == options
    assert set(folders(manifests)) == mounted


@pytest.mark.parametrize("values", ["daemonset-nvml", "gateway", "sidecar-without-kubernetes"])
def test_the_preset_is_off_where_it_would_ask_for_more_rights_or_is_switched_off(values: str) -> None:
    manifests = example(values)
    assert "kubernetes" not in config(manifests)["processors"]
    assert folders(manifests) == {}


@pytest.mark.parametrize("values", ["daemonset", "sidecar-ebpf"])
def test_the_names_are_there_before_the_phases(values: str) -> None:
    assert processors(example(values)) == ["resource", "kubernetes", "phases", "percentiles"]


def test_a_gateway_limits_its_memory_first() -> None:
    assert processors(example("gateway-api")) == ["memory_limiter", "kubernetes"]


@pytest.mark.parametrize("values", ["daemonset", "daemonset-api"])
def test_the_folders_are_where_the_processor_looks_for_them(values: str) -> None:
    """The kubelet's folder has another path on some nodes, but the same one in the container."""
    found = folders(example(values))
    kubelet = "/var/lib/k0s/kubelet" if values == "daemonset-api" else "/var/lib/kubelet"
    assert found[LOGS] == ("/var/log/pods", PROCESSOR.pod_logs)
    socket = KubernetesProcessorConfig.model_validate({"pod_resources": {}}).pod_resources
    assert socket
    assert found[SOCKET] == (f"{kubelet}/pod-resources", socket.socket.removesuffix("/kubelet.sock"))


def test_a_missing_folder_is_not_created_on_the_node() -> None:
    volumes = pod_spec(example("daemonset"))["volumes"]
    assert {volume["hostPath"]["type"] for volume in volumes if "hostPath" in volume} == {"Directory"}


@pytest.mark.parametrize(
    ("own", "mounted"),
    [
        ({}, {LOGS}),
        ({"pod_logs": None}, set()),
        ({"pod_logs": None, "pod_resources": {}}, {SOCKET}),
        ({"own_pod": True}, set()),
    ],
)
def test_the_folders_follow_the_pipelines_and_not_the_preset(own: dict[str, object], mounted: set[str]) -> None:
    """A processor that no pipeline uses gets no folder, and one of the user's own configuration does."""
    pipelines = {"training": {"processors": ["kubernetes/own"]}}
    text = json.dumps({"processors": {"kubernetes/own": own}, "service": {"pipelines": pipelines}})
    for enabled in ("true", "false"):
        assert set(folders(render_mode("daemonset", config=text, presets__kubernetes__enabled=enabled))) == mounted


def test_a_sidecar_reads_its_labels_in_a_volume_that_no_job_has() -> None:
    manifests = example("sidecar")
    (volume,) = (one for one in pod_spec(manifests)["volumes"] if "downwardAPI" in one)
    (mount,) = (one for one in container(manifests)["volumeMounts"] if one["name"] == volume["name"])
    assert mount == {"name": "podinfo-otel-zernel", "mountPath": PROCESSOR.pod_info, "readOnly": True}
    fields = {one["path"]: one["fieldRef"]["fieldPath"] for one in volume["downwardAPI"]["items"]}
    assert fields == {"labels": "metadata.labels", "annotations": "metadata.annotations"}


@pytest.mark.parametrize(("values", "names_itself"), [("sidecar", False), ("sidecar-without-kubernetes", True)])
def test_a_sidecar_names_its_pod_once(values: str, names_itself: bool) -> None:
    """Without the processor, the detector env has the names. With it, env has only what the user sets."""
    manifests = example(values)
    environ = [one["name"] for one in container(manifests)["env"]]
    assert ("OTEL_RESOURCE_ATTRIBUTES" in environ) is names_itself
    assert {"K8S_NAMESPACE", "K8S_POD_NAME", "K8S_POD_UID", "K8S_NODE_NAME"} <= set(environ)
    assert config(manifests)["processors"]["resource"]["detectors"] == ["env"]


def test_other_pipelines_of_a_sidecar_keep_the_names_from_the_environment() -> None:
    """A pipeline of the user's own, without the processor, had them from the detector before."""
    own = '{"service": {"pipelines": {"training": {"processors": ["resource"]}}}}'
    environ = {one["name"]: one.get("value", "") for one in container(render_mode("sidecar", config=own))["env"]}
    assert "k8s.pod.name=$(K8S_POD_NAME)" in environ["OTEL_RESOURCE_ATTRIBUTES"]
