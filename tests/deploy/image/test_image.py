"""The image: its process behaves as PID 1, its user is not root, and the OpenTelemetry Operator's arguments work.

The other variants of the image: for arm64 with pyarrow, and both architectures under one name.
"""

import json
import re
import signal
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.parse import unquote
from urllib.request import urlopen

import pytest

from deploy.image.sbom import sbom_path
from tests.deploy.conftest import Build
from tests.deploy.image.containers import ENTRYPOINT, Container, output, running
from tests.free_ports import free_port

EBPF = ("BPF", "PERFMON", "SYS_PTRACE", "DAC_READ_SEARCH", "CHECKPOINT_RESTORE")
EMPTY = """
receivers: {otlp: {protocols: {http: {endpoint: "127.0.0.1:%d"}}}}
exporters: {debug: {}}
service:
  telemetry:
    metrics:
      readers:
        - pull: {exporter: {prometheus: {host: 127.0.0.1, port: 0, without_scope_info: true, without_type_suffix: true,
                                         without_units: true}}}
  pipelines: {metrics: {receivers: [otlp], exporters: [debug]}}
"""
SITE = "usr/local/lib/python3.11/dist-packages"
_PYTHON = (*ENTRYPOINT[:-1], "/usr/bin/python3.11", "-c")


def described(image: Path) -> dict[str, Any]:
    done = subprocess.run(["skopeo", "inspect", "--config", f"oci-archive:{image}"], capture_output=True, check=True)
    loads: dict[str, Any] = json.loads(done.stdout)
    return loads


def printed(receiver: str, options: str = "{}") -> str:
    """The argument for a configuration of one receiver, whose data is printed."""
    pipeline = f"{{m: {{receivers: [{receiver}], exporters: [debug]}}}}"
    parts = f"receivers: {{{receiver}: {options}}}, exporters: {{debug: {{}}}}, service: {{pipelines: {pipeline}}}"
    return f"--config=yaml:{{{parts}}}"


def digest(image: Path) -> str:
    """The digest of the image's manifest, which has those of its layers and its configuration."""
    command = ["skopeo", "inspect", "--format", "{{.Digest}}", f"oci-archive:{image}"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def log_until(process: "subprocess.Popen[str]", text: str) -> None:
    """Reads the log until a line contains the text."""
    assert process.stdout
    seen = []
    for line in process.stdout:
        seen.append(line)
        if text in line:
            return
    pytest.fail(f"ended without {text!r}: {''.join(seen)}")


def test_its_user_is_not_root_and_its_entrypoint_is_the_tested_one(image: Path) -> None:
    config = described(image)["config"]
    assert config["User"] == "10001:10001"
    assert tuple(config["Entrypoint"]) == ENTRYPOINT
    assert config["Cmd"] == ["--config=/etc/otel-zernel/config.yaml"]


def test_it_has_no_shell_and_no_file_of_this_machine(root: Path) -> None:
    assert not (root / "bin/sh").exists()
    site = root / SITE
    assert list(site.glob("*.dist-info/direct_url.json")) == []
    assert (root / "etc/ssl/certs/ca-certificates.crt").read_text().count("BEGIN CERTIFICATE") > 100


def packages_of_debian(root: Path) -> set[str]:
    """`name@version` of each package whose control fields are in the image."""
    texts = [path.read_text() for path in (root / "var/lib/dpkg/status.d").iterdir()]
    fields = [dict(re.findall(r"^(Package|Version): (.*)$", text, re.MULTILINE)) for text in texts]
    return {f"{field['Package']}@{field['Version']}" for field in fields}


def packages_of_python(root: Path) -> set[str]:
    """`name@version` of each package that Python finds in the image."""
    distributions = metadata.distributions(path=[str(root / SITE)])
    return {f"{canonical(distribution.name)}@{distribution.version}" for distribution in distributions}


def canonical(name: str) -> str:
    """The name as PyPI writes it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def test_it_describes_its_packages_for_scanners(root: Path) -> None:
    names = {package.split("@")[0] for package in packages_of_debian(root)}
    assert {"libbpf1", "tini", "libc6", "ca-certificates"} <= names
    assert names.isdisjoint({"dpkg", "mawk"}), "these are removed"
    assert {"otel-zernel", "pydantic", "confluent-kafka"} <= {
        package.split("@")[0] for package in packages_of_python(root)
    }


def test_its_sbom_lists_exactly_its_packages(image: Path, root: Path) -> None:
    """A scanner finds vulnerabilities by package URLs, and needs the release of Debian for them."""
    urls = [unquote(load.get("purl", "")) for load in json.loads(sbom_path(image).read_text())["components"]]
    assert {url.removeprefix("pkg:pypi/") for url in urls if url.startswith("pkg:pypi/")} == packages_of_python(root)
    debian = [url.removeprefix("pkg:deb/debian/") for url in urls if url.startswith("pkg:deb/debian/")]
    assert {url.split("?")[0] for url in debian} == packages_of_debian(root)
    assert all("distro=debian-12" in url for url in debian)


def test_sigterm_drains_it_and_its_status_is_0(root: Path, tmp_path: Path) -> None:
    container = Container(["--config=env:OTEL_CONFIG"], env={"OTEL_CONFIG": EMPTY % free_port()})
    with running(container, root, tmp_path) as process:
        log_until(process, "Everything is ready")
        process.send_signal(signal.SIGTERM)
        log_until(process, "Stopped.")
        assert process.wait(60) == 0


def test_it_runs_with_the_configuration_of_the_opentelemetry_operator(root: Path, tmp_path: Path) -> None:
    """The Operator mounts `/conf`, and adds three keys to the reader of own metrics."""
    port = free_port()
    conf = tmp_path / "conf"
    conf.mkdir()
    (conf / "collector.yaml").write_text(EMPTY.replace("port: 0", f"port: {port}") % free_port())
    container = Container(["--config=/conf/collector.yaml"], mounts={Path("/conf"): conf})
    with running(container, root, tmp_path / "bundle") as process:
        log_until(process, "Everything is ready")
        with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as page:
            assert "otelcol_process_uptime" in page.read().decode()
        process.send_signal(signal.SIGTERM)
        log_until(process, "Stopped.")
        assert process.wait(60) == 0


def test_sigterm_ends_a_process_that_has_no_handler_yet(root: Path, tmp_path: Path) -> None:
    program = "import time; print('started', flush=True); time.sleep(600)"
    with running(Container([program], entrypoint=_PYTHON), root, tmp_path) as process:
        log_until(process, "started")
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 128 + signal.SIGTERM


def test_orphans_are_reaped(root: Path, tmp_path: Path) -> None:
    program = """
import os, time
reading, writing = os.pipe()
child = os.fork()
if child == 0:
    orphan = os.fork()
    if orphan:
        os.write(writing, str(orphan).encode())
        os._exit(0)
    os._exit(0)
os.waitpid(child, 0)
orphan = os.read(reading, 20).decode()
while os.path.exists(f"/proc/{orphan}"):
    time.sleep(0.01)
print("reaped", flush=True)
"""
    status, text = output(Container([program], entrypoint=_PYTHON), root, tmp_path)
    assert (status, text) == (0, "reaped\n")


def test_a_wrong_configuration_is_status_1_and_one_sentence(root: Path, tmp_path: Path) -> None:
    status, text = output(Container(["--config=yaml:receivers: {nothing: {}}"]), root, tmp_path)
    assert status == 1
    assert "receivers::nothing" in text


def test_a_user_without_root_holds_the_capabilities_of_the_container(root: Path, tmp_path: Path) -> None:
    """Kubernetes gives no ambient capabilities, and `allowPrivilegeEscalation: false` is set."""
    doctor = ["doctor", printed("ebpf")]
    _, with_them = output(Container(doctor, capabilities=EBPF, host_pid=True), root, tmp_path / "with")
    _, without = output(Container(doctor, host_pid=True), root, tmp_path / "without")
    for name in EBPF:
        assert f"ok  CAP_{name}" in with_them
        assert f"ok  CAP_{name}" not in without


def test_the_image_without_pyarrow_says_what_csv_needs(root: Path, tmp_path: Path) -> None:
    status, text = output(Container(["validate", printed("csv", "{files: [/x.csv]}")]), root, tmp_path)
    assert status == 1
    assert "pyarrow" in text


@pytest.mark.soak
def test_two_builds_of_one_commit_are_equal(image: Path, build: Build) -> None:
    assert digest(image) == digest(build())


@pytest.mark.soak
def test_one_name_has_both_architectures(image: Path, arm64: Path, tmp_path: Path) -> None:
    """The commands of deploy/README.md, with a folder in place of the registry."""
    store = ["buildah", "--storage-driver=vfs", f"--root={tmp_path / 'store'}", f"--runroot={tmp_path / 'run'}"]
    subprocess.run([*store, "manifest", "create", "all"], check=True)
    for archive in (image, arm64):
        subprocess.run([*store, "manifest", "add", "all", f"oci-archive:{archive}"], check=True)
    subprocess.run([*store, "manifest", "push", "--all", "all", f"oci:{tmp_path / 'all'}"], check=True)
    inspect = ["skopeo", "inspect", "--raw", f"oci:{tmp_path / 'all'}"]
    index = json.loads(subprocess.run(inspect, capture_output=True, check=True).stdout)
    assert {(one["platform"]["os"], one["platform"]["architecture"]) for one in index["manifests"]} == {
        ("linux", "amd64"),
        ("linux", "arm64"),
    }


@pytest.mark.soak
def test_the_image_for_arm64_has_only_programs_for_arm64(arm64: Path, tmp_path: Path) -> None:
    assert described(arm64)["architecture"] == "arm64"
    layout = tmp_path / "layout"
    layout.mkdir()
    subprocess.run(["tar", "--extract", "--file", arm64, "--directory", layout], check=True)
    (layer,) = (path for path in (layout / "blobs/sha256").iterdir() if path.stat().st_size > 1 << 20)
    tree = tmp_path / "tree"
    tree.mkdir()
    subprocess.run(["tar", "--extract", "--file", layer, "--directory", tree], check=True)
    programs = [path for path in tree.rglob("*") if path.is_file() and not path.is_symlink() and is_elf(path)]
    of_users = [path for path in programs if path.suffix != ".o"]  # the programs of eBPF have a machine of their own
    assert {machine(path) for path in of_users} == {183}, "EM_AARCH64"
    assert list(tree.rglob("pyarrow/_parquet*.so"))


def is_elf(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def machine(path: Path) -> int:
    """`e_machine` of an ELF file."""
    with path.open("rb") as file:
        return int.from_bytes(file.read(20)[18:20], "little")
