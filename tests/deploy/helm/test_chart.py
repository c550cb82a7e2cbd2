"""Every example of values is valid: for Helm 3 and 4, for Kubernetes 1.30 to 1.37, and for otel-zernel itself.

The plain manifests are those of the chart, and Kustomize reads them. UPDATE_GOLDEN=1 renders them again.
"""

import functools
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from docs.catalogue import ROOT
from otel_zernel.cli import main
from otel_zernel.config.schema import ServiceSection
from otel_zernel.engine.process import GRACE
from otel_zernel.types import parse_duration
from tests.deploy.helm.rendering import (
    CHART,
    CI,
    HELMS,
    Manifest,
    config,
    config_text,
    container,
    only,
    pod_spec,
    program,
    render,
    render_mode,
    render_text,
)

KUBERNETES = [f"1.{minor}" for minor in range(30, 38)]
NOT_OF_KUBERNETES = "monitoring.coreos.com/"
"""Kinds of the Prometheus Operator, whose schemas Kubernetes does not have."""
EVERY_EXAMPLE = pytest.mark.parametrize("values", CI, ids=lambda path: path.name.removesuffix("-values.yaml"))


@functools.cache
def rendered(values: Path, helm: str = "4") -> list[Manifest]:
    return render(values, helm=helm)


def in_a_pod(sidecar: Manifest) -> Manifest:
    """A pod of a job with the fields of the sidecar."""
    job = {"containers": [{"name": "train", "image": "train"}], **sidecar}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "job"}, "spec": job}


@EVERY_EXAMPLE
def test_kubernetes_accepts_every_example(values: Path) -> None:
    """Both versions of Helm render the same, so one is enough."""
    validate = pytest.importorskip("kubernetes_validate", reason="needs the package kubernetes-validate: `make peers`")
    manifests = rendered(values)
    if yaml.safe_load(values.read_text())["mode"] == "sidecar":
        manifests = [*manifests, in_a_pod(pod_spec(manifests))]
    own = [manifest for manifest in manifests if not manifest["apiVersion"].startswith(NOT_OF_KUBERNETES)]
    for version in KUBERNETES:
        for manifest in own:
            validate.validate(manifest, version, strict=True)


@EVERY_EXAMPLE
def test_both_versions_of_helm_render_the_same(values: Path) -> None:
    first, second = (without_certificates(rendered(values, helm)) for helm in HELMS)
    assert first == second


def without_certificates(manifests: list[Manifest]) -> list[Manifest]:
    """Each rendering makes new certificates."""
    secrets = ("Secret", "MutatingWebhookConfiguration", "Deployment")
    return [
        manifest
        for manifest in manifests
        if not (manifest["kind"] in secrets and "-injector" in manifest["metadata"]["name"])
    ]


@EVERY_EXAMPLE
def test_the_collector_accepts_every_configuration(
    values: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("MY_POD_IP", "K8S_NODE_NAME", "TOKEN"):
        monkeypatch.setenv(name, "127.0.0.1")
    path = tmp_path / "config.yaml"
    path.write_text(config_text_of(rendered(values)))
    status = main(["validate", f"--config={path}"])
    printed = capsys.readouterr()
    assert status == 0, printed.err
    assert "warning" not in printed.err.lower()


def config_text_of(manifests: list[Manifest]) -> str:
    if any(manifest["kind"] == "ConfigMap" and manifest["metadata"]["name"] == "mine" for manifest in manifests):
        return str(next(manifest["data"]["config.yaml"] for manifest in manifests if manifest["kind"] == "ConfigMap"))
    return config_text(manifests)


@pytest.mark.parametrize("helm", HELMS)
def test_helm_finds_no_mistake(helm: str) -> None:
    command = [str(program("helm", helm)), "lint", "--strict", str(CHART), "--values", str(CI[0])]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_the_injectors_configuration_is_valid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MY_POD_IP", "127.0.0.1")
    path = tmp_path / "injector.yaml"
    path.write_text(only(render(CHART / "ci/sidecar-injector-values.yaml"), "ConfigMap")["data"]["injector.yaml"])
    assert main(["validate", f"--config={path}"]) == 0, capsys.readouterr().err


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"mode": '"node"'}, "mode"),
        ({"mode": '""'}, "mode"),
        ({"presets.ebpv": "{}"}, "ebpv"),
        ({"tolerashuns": "[]"}, "tolerashuns"),
        ({"replicaCount": '"two"'}, "replicaCount"),
        ({"image.digest": '"latest"'}, "digest"),
        ({"shutdownTimeoutSeconds": "-1"}, "shutdownTimeoutSeconds"),
        ({"preStopSleepSeconds": "0"}, "preStopSleepSeconds"),
        ({"statefulset.whenScaled": '"Keep"'}, "whenScaled"),
        ({"image.repository": '""'}, "repository"),
        ({"statefulset.enabled": "true"}, "statefulset.enabled: it has no effect in mode daemonset"),
        ({"autoscaling.enabled": "true"}, "autoscaling.enabled: it has no effect in mode daemonset"),
        ({"injector.enabled": "true"}, "injector.enabled: it has no effect in mode daemonset, only in mode sidecar"),
        ({"mode": '"sidecar"', "hostNetwork": "true"}, "hostNetwork: it has no effect in mode sidecar"),
        ({"mode": '"sidecar"', "podMonitor.enabled": "true"}, "only in mode daemonset and gateway"),
        ({"mode": '"sidecar"', "networkPolicy.enabled": "true"}, "networkPolicy.enabled: it has no effect in mode"),
        ({"mode": '"sidecar"', "clusterRole.create": "true"}, "clusterRole.create: it has no effect in mode sidecar"),
        ({"mode": '"sidecar"', "configMap.existingName": '"mine"'}, "configMap.existingName: it has no effect"),
        ({"mode": '"gateway"', "otlp.endpoint": '"b:1"', "presets.ebpf.enabled": "true"}, "only in mode daemonset and"),
        ({"mode": '"gateway"', "otlp.endpoint": '"b:1"', "hostPID": "true"}, "hostPID: it has no effect in mode"),
        ({"autoscaling.queueFill.enabled": "true"}, "it has no effect without autoscaling.enabled"),
        ({"config": '{"service": {"shutdown_timeout": "1m"}}'}, "set shutdownTimeoutSeconds in place of"),
        ({"presets.ebpf.enabled": "false", "presets.nvml.enabled": "false"}, "switch on presets.ebpf or presets.nvml"),
        ({"configMap.create": "false"}, "set configMap.existingName"),
        ({"presets.kubernetes.kubeletPath": '"var/lib/kubelet/"'}, "kubeletPath"),
        ({"presets.kubernetes.labels": '"team"'}, "labels"),
        ({"presets.kubernetes.labels": '["team"]'}, "set presets.kubernetes.api to true"),
        ({"presets.kubernetes.annotations": '["run"]'}, "set presets.kubernetes.api to true"),
        ({"presets.ebpf.enabled": "false", "presets.kubernetes.api": "true"}, "set presets.kubernetes.enabled to true"),
    ],
)
@pytest.mark.parametrize("helm", HELMS)
def test_a_wrong_value_is_refused_with_its_name(helm: str, changes: dict[str, str], sentence: str) -> None:
    with pytest.raises(subprocess.CalledProcessError) as raised:
        render_text(CHART / "ci/daemonset-values.yaml", changes=changes, helm=helm)
    assert sentence in raised.value.stderr


def test_a_gateway_without_a_destination_is_refused() -> None:
    with pytest.raises(subprocess.CalledProcessError) as raised:
        render_mode("gateway", otlp__endpoint='""')
    assert "set otlp.endpoint" in raised.value.stderr


def test_mappings_merge_lists_replace_and_null_removes() -> None:
    found = config(render(CHART / "ci/daemonset-config-values.yaml"))
    assert found["receivers"] == {"ebpf": {"interval": "100ms"}}
    assert list(found["exporters"]) == ["otlp_http"]
    pipeline = found["service"]["pipelines"]["training"]
    assert pipeline["exporters"] == ["otlp_http"]
    assert pipeline["processors"] == ["resource", "kubernetes", "phases", "percentiles"]


def test_another_configuration_makes_new_pods_and_the_same_one_does_not() -> None:
    def checksum(**changes: str) -> str:
        template = only(render_mode("daemonset", **changes), "DaemonSet")["spec"]["template"]
        return str(template["metadata"]["annotations"]["checksum/config"])

    assert checksum() == checksum(podLabels='{"a": "b"}')
    assert checksum() != checksum(config='{"receivers": {"ebpf": {"interval": "1s"}}}')


@pytest.mark.parametrize(
    ("values", "changes", "sentence"),
    [
        ("sidecar", {"presets.kubernetes.api": "true"}, "a sidecar has no rights of its own"),
        ("sidecar", {"presets.kubernetes.podResources": "true"}, "only mode daemonset has the kubelet's socket"),
        ("gateway-api", {"presets.kubernetes.podResources": "true"}, "only mode daemonset has the kubelet's socket"),
        ("gateway-api", {"presets.kubernetes.api": "false"}, "a gateway knows pods from the API only"),
        ("gateway", {"presets.kubernetes.api": "true"}, "set presets.kubernetes.enabled to true"),
    ],
)
def test_a_source_of_pods_that_the_mode_lacks_is_refused(values: str, changes: dict[str, str], sentence: str) -> None:
    with pytest.raises(subprocess.CalledProcessError) as raised:
        render_text(CHART / f"ci/{values}-values.yaml", changes=changes)
    assert sentence in raised.value.stderr


@pytest.mark.parametrize("seconds", [ServiceSection().shutdown_timeout, 90])
@pytest.mark.parametrize("mode", ["daemonset", "gateway"])
def test_the_grace_period_lets_the_queues_drain(mode: str, seconds: float) -> None:
    manifests = render_mode(mode, shutdownTimeoutSeconds=str(int(seconds)))
    spec = pod_spec(manifests)
    sleep = spec["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"]
    drain = parse_duration(config(manifests)["service"]["shutdown_timeout"])
    assert drain == seconds
    assert spec["terminationGracePeriodSeconds"] > sleep + drain + GRACE


def test_a_durable_gateway_keeps_its_queue_on_a_volume() -> None:
    manifests = render(CHART / "ci/gateway-durable-values.yaml")
    found, spec = config(manifests), pod_spec(manifests)
    assert found["exporters"]["otlp_grpc"]["sending_queue"]["storage"] == "file_storage"
    folder = found["extensions"]["file_storage"]["directory"]
    assert {"name": "queue", "mountPath": folder} in spec["containers"][0]["volumeMounts"]
    stateful = only(manifests, "StatefulSet")["spec"]
    assert stateful["volumeClaimTemplates"][0]["metadata"]["name"] == "queue"
    assert stateful["persistentVolumeClaimRetentionPolicy"]["whenScaled"] == "Retain"
    assert spec["securityContext"]["fsGroup"] == spec["securityContext"]["runAsGroup"]


def test_the_headless_service_and_the_statefulset_name_each_other() -> None:
    manifests = render(CHART / "ci/gateway-durable-values.yaml")
    name = only(manifests, "StatefulSet")["spec"]["serviceName"]
    (headless,) = (
        manifest for manifest in manifests if manifest["kind"] == "Service" and manifest["metadata"]["name"] == name
    )
    assert headless["spec"]["clusterIP"] == "None"


def test_every_port_of_a_service_and_a_policy_exists_in_the_pod() -> None:
    for values in CI:
        manifests = rendered(values)
        if yaml.safe_load(values.read_text())["mode"] != "sidecar":
            named = {port["name"] for port in pod_spec(manifests)["containers"][0]["ports"]}
            assert set(wanted_ports(manifests)) <= named, values


def wanted_ports(manifests: list[Manifest]) -> list[Any]:
    services = [
        port["targetPort"]
        for manifest in manifests
        if manifest["kind"] == "Service"
        for port in manifest["spec"]["ports"]
    ]
    policies = [
        manifest["spec"]["ingress"][0]["ports"] for manifest in manifests if manifest["kind"] == "NetworkPolicy"
    ]
    return [*services, *(port["port"] for ports in policies for port in ports)]


def test_the_probes_ask_the_health_check_on_the_pods_address() -> None:
    for mode, prefix, port in (
        ("daemonset", "", "13133"),
        ("gateway", "", "13133"),
        ("sidecar", "zernel-", "${env:ZERNEL_HEALTH_PORT:-13133}"),
    ):
        manifests = render_mode(mode)
        assert config(manifests)["extensions"]["health_check"]["endpoint"] == f"${{env:MY_POD_IP}}:{port}"
        spec = pod_spec(manifests)
        one = (spec.get("containers") or spec["initContainers"])[0]
        assert {"name": f"{prefix}health", "containerPort": 13133} in one["ports"]
        assert one["livenessProbe"]["httpGet"] == {"path": "/", "port": f"{prefix}health"}


def test_the_ports_of_a_sidecar_have_names_that_no_service_of_a_job_uses() -> None:
    names = [port["name"] for port in container(render_mode("sidecar"))["ports"]]
    assert names == ["zernel-health", "zernel-metrics", "zernel-page"]


def test_a_sidecar_has_no_token_and_the_secrets_for_its_image() -> None:
    manifests = render_mode("sidecar", imagePullSecrets='[{"name": "registry"}]')
    mounts = {mount["mountPath"]: mount["name"] for mount in container(manifests)["volumeMounts"]}
    volume = mounts["/var/run/secrets/kubernetes.io/serviceaccount"]
    assert {"name": volume, "emptyDir": {}} in pod_spec(manifests)["volumes"]
    assert pod_spec(manifests)["imagePullSecrets"] == [{"name": "registry"}]


def test_the_webhook_may_move_every_port_of_a_sidecar() -> None:
    manifests = render_mode("sidecar-injector")
    texts = only(manifests, "ConfigMap")["data"]
    ports = yaml.safe_load(texts["injected.yaml"])["ports"]
    for name, port in ports.items():
        assert f"${{env:{name}:-{port}}}" in config_text(manifests)
    assert {port["containerPort"] for port in container(manifests)["ports"]} <= set(ports.values())


def test_the_host_is_the_node_and_not_the_pod() -> None:
    manifests = render_mode("daemonset")
    changed = {one["key"]: one["value"] for one in config(manifests)["processors"]["resource"]["attributes"]}
    assert changed == dict.fromkeys(("host.name", "k8s.node.name"), "${env:K8S_NODE_NAME}")
    environ = {one["name"]: one for one in pod_spec(manifests)["containers"][0]["env"]}
    assert environ["K8S_NODE_NAME"]["valueFrom"]["fieldRef"]["fieldPath"] == "spec.nodeName"
    assert environ["ZERNEL_HOST_NAME"]["value"] == "$(K8S_NODE_NAME)"
    names = list(environ)
    assert names.index("K8S_NODE_NAME") < names.index("ZERNEL_HOST_NAME"), "Kubernetes expands earlier names only"


def test_the_schema_has_exactly_the_values() -> None:
    schema = yaml.safe_load((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert schema["additionalProperties"] is False
    assert set(values) == set(schema["properties"]) - {"global"}
    presets = schema["properties"]["presets"]["properties"]
    assert {name: set(preset) for name, preset in values["presets"].items()} == {
        name: set(preset["properties"]) for name, preset in presets.items()
    }


FOLDERS = sorted(path.parent for path in (ROOT / "deploy" / "manifests").glob("*/values.yaml"))


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_they_are_the_charts(folder: Path) -> None:
    text = render_text(folder / "values.yaml", name="otel-zernel")
    plain = text.replace("app.kubernetes.io/managed-by: Helm", "app.kubernetes.io/managed-by: kustomize")
    wanted = [one for one in yaml.safe_load_all(plain) if one]
    for one in wanted:
        one["metadata"].pop("namespace", None)
        one["metadata"]["labels"].pop("helm.sh/chart", None)
    golden = folder / "manifests.yaml"
    if os.environ.get("UPDATE_GOLDEN"):
        golden.write_text(yaml.safe_dump_all(wanted, sort_keys=False))
    assert list(yaml.safe_load_all(golden.read_text())) == wanted


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_kustomize_builds_them(folder: Path) -> None:
    done = subprocess.run([program("kubectl"), "kustomize", folder], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    built = [one["kind"] for one in yaml.safe_load_all(done.stdout)]
    assert sorted(built) == sorted(one["kind"] for one in yaml.safe_load_all((folder / "manifests.yaml").read_text()))
