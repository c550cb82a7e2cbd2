"""The pods have exactly the rights that their configuration needs."""

import json
import subprocess
from pathlib import Path

import pytest

from otel_zernel_receivers.ebpf.doctor import _OPTIONAL, _REQUIRED
from tests.deploy.helm.rendering import (
    CHART,
    CI,
    Manifest,
    container,
    only,
    pod_spec,
    program,
    render,
    render_mode,
)
from tests.deploy.test_bcc import NAMED

WATCH = {"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]}
EBPF = sorted(capability.name.removeprefix("CAP_") for capability in _REQUIRED | _OPTIONAL)


def added(manifests: list[Manifest]) -> list[str]:
    capabilities = container(manifests)["securityContext"]["capabilities"]
    assert capabilities["drop"] == ["ALL"]
    return sorted(capabilities.get("add", []))


def violations(spec: Manifest, one: Manifest) -> list[str]:
    """The rules of the Pod Security Standards' level "restricted" that a pod breaks."""
    context = {**spec.get("securityContext", {}), **one["securityContext"]}
    broken = {
        "host namespaces": any(spec.get(name) for name in ("hostPID", "hostNetwork", "hostIPC")),
        "host paths": any("hostPath" in volume for volume in spec["volumes"]),
        "host ports": any("hostPort" in port for port in one["ports"]),
        "capabilities": context["capabilities"].get("drop") != ["ALL"] or context["capabilities"].get("add", []) != [],
        "root": context.get("runAsNonRoot") is not True or context.get("runAsUser") == 0,
        "escalation": context.get("allowPrivilegeEscalation") is not False,
        "seccomp": context.get("seccompProfile", {}).get("type") != "RuntimeDefault",
    }
    return [name for name, is_broken in broken.items() if is_broken]


def notes(values: str, **changes: str) -> str:
    """The text that an installation prints. A double underscore in a name stands for a dot."""
    options = [f"--set-json={key.replace('__', '.')}={value}" for key, value in changes.items()]
    command = [
        str(program("helm")),
        "install",
        "run",
        str(CHART),
        "--dry-run=client",
        "--namespace",
        "ml",
        f"--values={CHART}/ci/{values}",
        *options,
    ]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_ebpf_gets_the_capabilities_that_doctor_names_and_the_hosts_pids() -> None:
    manifests = render_mode("daemonset")
    assert added(manifests) == EBPF
    assert pod_spec(manifests)["hostPID"] is True


def test_perf_links_need_one_more_capability() -> None:
    assert added(render_mode("daemonset", presets__ebpf__perfLinks="true")) == sorted([*EBPF, "SYS_ADMIN"])


def test_the_capabilities_follow_the_pipelines_and_not_the_presets() -> None:
    """A receiver that no pipeline uses gets no rights, and one of the user's own configuration does."""
    unused = '{"service": {"pipelines": {"training": {"receivers": ["nvml"]}}}}'
    assert added(render_mode("daemonset", config=unused)) == []
    pipelines = '{"own": {"receivers": ["ebpf/own"], "exporters": ["prometheus"]}}'
    own = f'{{"receivers": {{"ebpf/own": {{}}}}, "service": {{"pipelines": {pipelines}}}}}'
    changes = {"presets.ebpf.enabled": "false", "config": own}
    assert added(render(CHART / "ci/daemonset-values.yaml", changes=changes)) == EBPF


def test_bcc_gets_the_capabilities_that_the_documents_name_and_the_hosts_pids() -> None:
    pipelines = '{"own": {"receivers": ["bcc/io"], "exporters": ["prometheus"]}}'
    own = f'{{"receivers": {{"bcc/io": {{}}}}, "service": {{"pipelines": {pipelines}}}}}'
    changes = {"presets.ebpf.enabled": "false", "config": own}
    manifests = render(CHART / "ci/daemonset-values.yaml", changes=changes)
    assert [f"CAP_{name}" for name in added(manifests)] == sorted(NAMED)
    assert pod_spec(manifests)["hostPID"] is True
    both = render(CHART / "ci/daemonset-values.yaml", changes={"config": own})
    assert added(both) == sorted([*EBPF, "SYS_ADMIN"])


@pytest.mark.parametrize("values", CI, ids=lambda path: path.name.removesuffix("-values.yaml"))
def test_no_pod_is_privileged_or_may_write_its_root(values: Path) -> None:
    one = container(render(values))["securityContext"]
    assert one["allowPrivilegeEscalation"] is False
    assert one["readOnlyRootFilesystem"] is True
    assert "privileged" not in one


@pytest.mark.parametrize(
    ("values", "level"),
    [
        ("daemonset-values.yaml", "privileged"),
        ("daemonset-nvml-values.yaml", "restricted"),
        ("daemonset-gpu-pods-values.yaml", "privileged"),
        ("gateway-api-values.yaml", "restricted"),
        ("gateway-values.yaml", "restricted"),
        ("gateway-durable-values.yaml", "restricted"),
        ("sidecar-values.yaml", "restricted"),
        ("sidecar-ebpf-values.yaml", "privileged"),
    ],
)
def test_the_notes_name_the_least_level_of_pod_security(values: str, level: str) -> None:
    manifests = render(CHART / "ci" / values)
    broken = violations(pod_spec(manifests), container(manifests))
    assert ("restricted" if not broken else "privileged") == level, broken
    assert f'the level is "{level}"' in notes(values)


@pytest.mark.parametrize(
    "changes",
    [
        {"presets__kubernetes__enabled": "true"},
        {"extraVolumes": '[{"name": "own", "hostPath": {"path": "/data"}}]'},
    ],
)
def test_a_folder_of_the_node_needs_the_level_privileged(changes: dict[str, str]) -> None:
    """The level of the Pod Security Standards "baseline" allows none."""
    manifests = render_mode("daemonset-nvml", **changes)
    assert "host paths" in violations(pod_spec(manifests), container(manifests))
    assert 'the level is "privileged"' in notes("daemonset-nvml-values.yaml", **changes)


def test_a_pod_is_root_only_for_the_kubelets_socket() -> None:
    """It gets no more capabilities, and the other containers of the pod keep their user."""
    manifests, without = render_mode("daemonset"), render_mode("daemonset-without-root")
    one = container(manifests)["securityContext"]
    assert (one["runAsUser"], one["runAsNonRoot"]) == (0, False)
    assert one["capabilities"] == container(without)["securityContext"]["capabilities"]
    for spec in (pod_spec(manifests), pod_spec(without)):
        assert (spec["securityContext"]["runAsUser"], spec["securityContext"]["runAsNonRoot"]) == (10001, True)
    assert "runAsUser" not in container(without)["securityContext"]
    assert "User: root" in notes("daemonset-values.yaml")
    assert "User: root" not in notes("daemonset-without-root-values.yaml")


def test_the_users_own_security_context_is_the_last_word() -> None:
    one = container(render_mode("daemonset", securityContext='{"runAsUser": 7, "runAsNonRoot": true}'))
    assert (one["securityContext"]["runAsUser"], one["securityContext"]["runAsNonRoot"]) == (7, True)


@pytest.mark.parametrize("values", ["daemonset-api", "gateway-api"])
def test_a_pod_that_watches_pods_may_list_and_watch_them_and_nothing_else(values: str) -> None:
    manifests = render_mode(values)
    assert only(manifests, "ClusterRole")["rules"] == [WATCH]
    (subject,) = only(manifests, "ClusterRoleBinding")["subjects"]
    account = {"kind": "ServiceAccount", "name": pod_spec(manifests)["serviceAccountName"], "namespace": "ml"}
    assert subject == account
    assert pod_spec(manifests)["automountServiceAccountToken"] is True
    assert "list and watch of pods" in notes(f"{values}-values.yaml")


def test_a_watch_keeps_the_users_own_rules() -> None:
    nodes = {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]}
    rules = {"create": True, "rules": [nodes]}
    manifests = render_mode("daemonset-api", clusterRole=json.dumps(rules))
    assert only(manifests, "ClusterRole")["rules"] == [nodes, WATCH]
    ignored = render_mode("daemonset-api", clusterRole=json.dumps({**rules, "create": False}))
    assert only(ignored, "ClusterRole")["rules"] == [WATCH]


def test_a_watch_with_a_kubeconfig_needs_no_role() -> None:
    own = '{"processors": {"kubernetes": {"api": {"kubeconfig": "/etc/kube/config"}}}}'
    manifests = render_mode("daemonset-api", config=own)
    assert not [manifest for manifest in manifests if manifest["kind"].startswith("ClusterRole")]
    assert pod_spec(manifests)["automountServiceAccountToken"] is False


def test_a_pod_has_no_token_of_the_api_server_without_a_role() -> None:
    assert pod_spec(render_mode("daemonset"))["automountServiceAccountToken"] is False
    with_role = render(CHART / "ci/daemonset-backend-values.yaml")
    assert pod_spec(with_role)["automountServiceAccountToken"] is True
    assert only(with_role, "ClusterRole")["rules"]


def test_an_ebpf_sidecar_sees_the_processes_of_the_pod() -> None:
    assert pod_spec(render(CHART / "ci/sidecar-ebpf-values.yaml"))["shareProcessNamespace"] is True
    assert "shareProcessNamespace" not in pod_spec(render_mode("sidecar"))
