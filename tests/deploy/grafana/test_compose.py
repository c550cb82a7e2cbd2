"""deploy/compose.yaml: it is valid, its files exist, and its programs accept them. Docker itself is not needed."""

import importlib
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.grafana.boards import DASHBOARDS
from docs.catalogue import ROOT
from otel_zernel.config.schema import read_settings
from otel_zernel.registry import Registry
from tests.interop.installed import find_peer, miss

DEPLOY = ROOT / "deploy"
FILE = DEPLOY / "compose.yaml"
SERVICES: dict[str, Any] = yaml.safe_load(FILE.read_text())["services"]
PROVISIONING = DEPLOY / "grafana" / "provisioning"


def mounts(service: str) -> dict[str, Path]:
    """The files and folders that a service gets from the repository, by their path in the container."""
    texts = [volume.split(":") for volume in SERVICES[service].get("volumes", ())]
    return {target: DEPLOY / source for source, target, *_ in texts if source.startswith(".")}


def test_it_follows_the_specification_of_compose_files() -> None:
    try:
        compose = importlib.import_module("compose_spec").PyCompose
    except ImportError:
        miss("the package compose-spec is missing: `make peers` installs it")
    assert set(compose.from_yaml(FILE.read_text()).service_names()) == SERVICES.keys()


def test_a_mistake_in_it_is_found() -> None:
    try:
        compose = importlib.import_module("compose_spec").PyCompose
    except ImportError:
        miss("the package compose-spec is missing: `make peers` installs it")
    with pytest.raises(ValueError, match="volums"):
        compose.from_yaml(FILE.read_text().replace("    volumes:", "    volums:", 1))


@pytest.mark.parametrize("service", SERVICES)
def test_the_files_that_it_mounts_exist(service: str) -> None:
    assert [str(path) for path in mounts(service).values() if not path.exists()] == []
    build = SERVICES[service].get("build")
    assert not build or (DEPLOY / build["context"] / build["dockerfile"]).exists()


def test_only_this_machine_reaches_its_ports() -> None:
    ports = [port for service in SERVICES.values() for port in service.get("ports", ())]
    assert [port for port in ports if not port.startswith("127.0.0.1:")] == []


def test_the_configuration_of_the_collector_is_valid() -> None:
    (config,) = mounts("collector").values()
    settings = read_settings([str(config)], [], {}, Registry.installed())
    assert not settings.warnings


def test_prometheus_accepts_its_configuration(tmp_path: Path) -> None:
    for target, source in mounts("prometheus").items():
        copied = tmp_path / Path(target).relative_to("/etc/prometheus")
        (shutil.copytree if source.is_dir() else shutil.copy)(source, copied)
    command = [str(find_peer("promtool")), "check", "config", "prometheus.yml"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 rule files found" in done.stdout


def test_prometheus_scrapes_it_as_the_scrape_example_says() -> None:
    def jobs(path: Path) -> dict[str, bool]:
        return {
            one["job_name"]: one.get("honor_labels", False)
            for one in yaml.safe_load(path.read_text())["scrape_configs"]
        }

    assert jobs(DEPLOY / "compose" / "prometheus.yaml") == jobs(DEPLOY / "prometheus" / "prometheus.yaml")


def test_grafana_finds_the_data_sources_and_the_dashboards() -> None:
    grafana = SERVICES["grafana"]
    sources = yaml.safe_load((PROVISIONING / "datasources" / "otel-zernel.yaml").read_text())["datasources"]
    for source in sources:
        name, _, port = grafana["environment"][source["url"].strip("${}")].removeprefix("http://").partition(":")
        assert (name in SERVICES, port.isdigit()) == (True, True)
    uids = {source["uid"] for source in sources}
    by_type = {source["type"]: source for source in sources}
    (link,) = by_type["prometheus"]["jsonData"]["exemplarTraceIdDestinations"]
    assert link == {"name": "trace_id", "datasourceUid": by_type["tempo"]["uid"]}
    assert by_type["tempo"]["jsonData"]["tracesToMetrics"]["datasourceUid"] in uids
    (provider,) = yaml.safe_load((PROVISIONING / "dashboards" / "otel-zernel.yaml").read_text())["providers"]
    folder = mounts("grafana")[provider["options"]["path"]]
    assert {path.stem for path in folder.iterdir()} == {board.uid for board in DASHBOARDS}
    home = Path(grafana["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"])
    assert (folder / home.name).exists()


def test_the_collector_sends_its_traces_to_the_port_of_tempo() -> None:
    collector = yaml.safe_load((DEPLOY / "compose" / "collector.yaml").read_text())
    tempo = yaml.safe_load((DEPLOY / "compose" / "tempo.yaml").read_text())
    port = tempo["distributor"]["receivers"]["otlp"]["protocols"]["http"]["endpoint"].rpartition(":")[2]
    assert collector["exporters"]["otlp_http"] == {"traces_endpoint": f"http://tempo:{port}/v1/traces"}


def test_the_image_has_all_that_the_collector_is_built_from(tmp_path: Path) -> None:
    """pip builds the wheel from the files that .dockerignore lets through."""
    rules = (DEPLOY / "compose" / "Dockerfile.dockerignore").read_text().splitlines()
    assert rules[0] == "*"
    for name in (rule.removeprefix("!") for rule in rules[1:]):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if (ROOT / name).is_dir() else shutil.copy)(ROOT / name, tmp_path / name)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(tmp_path / "dist"), "."]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    if "hatchling" in done.stderr and done.returncode:
        miss(f"pip cannot get hatchling, which builds the wheel: {done.stderr.splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    job = subprocess.run([sys.executable, "-c", "import examples.simulated_job.__main__"], cwd=tmp_path, check=False)
    assert job.returncode == 0
