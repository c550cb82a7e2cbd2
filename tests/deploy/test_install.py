"""The wheel that the README builds has everything, and an sdist installs the same into a clean environment."""

import json
import os
import re
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml

from docs.catalogue import ROOT
from otel_zernel.registry import KINDS, Registry
from tests.interop.installed import miss
from tests.receivers.ebpf.sampler.pythons import python_of

README = (ROOT / "README.md").read_text("utf-8")
EXTRAS = set(tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"])
NEWER = (12, 13, 14)
"""Versions 3.x of Python that are supported beside that of the tests."""
PLATFORMS = {
    "arm64": ("manylinux2014_aarch64", "manylinux_2_27_aarch64", "manylinux_2_28_aarch64"),
    "musl": ("musllinux_1_1_x86_64", "musllinux_1_2_x86_64"),
    "musl-arm64": ("musllinux_1_1_aarch64", "musllinux_1_2_aarch64"),
    "macos": ("macosx_14_0_arm64", "macosx_11_0_arm64", "macosx_11_0_universal2", "macosx_10_9_universal2"),
}
MOST_PACKAGES = 34
"""The 29 of the base in docs/benchmarks.md, the project, pip, setuptools, and two that a new version may bring."""
BASE = """
receivers: {{otlp_json_file: {{include: [{recording}]}}, otlp: {{protocols: {{http: {{endpoint: localhost:0}}}}}}}}
processors: {{phases: {{window: 1h, pace: 0}}}}
exporters: {{debug: {{verbosity: jobs}}}}
service:
  telemetry: {{metrics: {{level: none}}}}
  pipelines: {{m: {{receivers: [otlp_json_file], processors: [phases], exporters: [debug]}}}}
"""
WITH_EXTRAS = """
receivers: {kafka: , csv: {files: [/data/*.csv], layout: dcgm}}
processors: {filter: {metrics: {exclude: {match_type: regexp, metric_names: ["(hw.+)+"]}}}}
exporters: {kafka: , sql: {url: "postgresql://user@host/database"}, websocket: ,
  prometheus_remote_write: {endpoint: "http://host/write"}}
extensions: {basicauth: {htpasswd: {inline: "user:password"}}}
service:
  extensions: [basicauth]
  telemetry: {metrics: {readers: [{periodic: {exporter: {otlp: {endpoint: "http://host:4317"}}}}]}}
  pipelines: {m: {receivers: [kafka, csv], processors: [filter],
    exporters: [kafka, sql, prometheus_remote_write, websocket]}}
"""


REPOSITORY = "https://repository.example/owner/otel-zernel"
PUBLISHED = os.environ | {"OTEL_ZERNEL_REPOSITORY": REPOSITORY}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built by the README's first command, in another folder."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), "."]
    done = subprocess.run(command, cwd=ROOT, env=PUBLISHED, capture_output=True, text=True, check=False)
    if "hatchling" in done.stderr and done.returncode:
        miss(f"pip cannot get hatchling, which builds the wheel: {done.stderr.splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    (built,) = folder.glob("*.whl")
    return built


def built_sdist(folder: Path) -> Path:
    command = [sys.executable, "-m", "build", "--quiet", "--sdist", "--outdir", str(folder), str(ROOT)]
    done = subprocess.run(command, cwd=folder, env=PUBLISHED, capture_output=True, text=True, check=False)
    if "hatchling" in done.stdout and done.returncode:
        miss(f"pip cannot get hatchling, which builds the sdist: {done.stdout.splitlines()[-1]}")
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = folder.glob("*.tar.gz")
    return built


class CleanEnvironment:
    """A new environment of an interpreter with the newest pip, without packages of any other."""

    def __init__(self, interpreter: str, folder: Path) -> None:
        self.folder = folder / "venv"
        self._python = self.folder / "bin" / "python"
        self._work = folder
        subprocess.run([interpreter, "-m", "venv", "--without-pip", self.folder], check=True)
        installing = [sys.executable, "-m", "pip", "--python", str(self._python), "install", "--quiet", "pip"]
        done = subprocess.run(installing, capture_output=True, text=True, check=False)
        if done.returncode:
            miss(f"pip cannot get packages: {done.stderr.splitlines()[-1]}")

    def run(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        """Runs a module."""
        environ = {name: value for name, value in PUBLISHED.items() if name not in {"PYTHONPATH", "VIRTUAL_ENV"}}
        command = [self._python, "-m", *arguments]
        return subprocess.run(command, cwd=self._work, env=environ, capture_output=True, text=True, check=False)

    def install(self, package: Path) -> None:
        installed = self.run("pip", "install", "--quiet", "--no-compile", package)
        assert installed.returncode == 0, installed.stderr

    def assert_base_works(self) -> None:
        """Without extras: the answers of a command and of a collector on recordings."""
        assert self.run("pip", "check").returncode == 0
        assert self.run("otel_zernel", "why", "--help").returncode == 0
        reported = self.run("otel_zernel", "demo")
        assert reported.returncode == 0, reported.stderr
        assert "Where a step's time goes" in reported.stdout
        config = self._work / "config.yaml"
        config.write_text(BASE.format(recording=ROOT / "examples/training_spans.jsonl"))
        ended = self.run("otel_zernel", "run", "--exit-when-done", config)
        assert ended.returncode == 0, ended.stderr
        assert "this costs" in ended.stdout

    def assert_quickstart_runs(self) -> None:
        """Until it has said why the recorded job is slow."""
        free = ("exporters.prometheus", "extensions.api", "extensions.health_check")
        ports = [f"--set={component}.endpoint=localhost:0" for component in free]
        options = [*ports, "--set=service.telemetry.metrics.level=none"]
        command = [str(self.folder / "bin" / "otel-zernel"), "run", "examples/quickstart.yaml", *options]
        with subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as process:
            assert process.stdout
            assert any("this costs" in line for line in process.stdout)
            process.terminate()
            process.communicate(timeout=60)
        assert process.returncode == 0


def test_the_newest_pip_installs_the_sdist_into_a_clean_environment_and_the_wheel_is_the_same(
    wheel: Path, tmp_path: Path
) -> None:
    environment = CleanEnvironment(sys.executable, tmp_path)
    environment.install(built_sdist(tmp_path))
    distributions = json.loads(environment.run("pip", "list", "--format=json").stdout)
    assert len(distributions) <= MOST_PACKAGES, distributions
    environment.assert_base_works()
    listed = yaml.safe_load(environment.run("otel_zernel", "components").stdout)
    described = [component for kind in KINDS for component in listed[kind]]
    assert [component for component in described if "broken" in component] == []
    validated = environment.run("otel_zernel", "validate", f"yaml:{WITH_EXTRAS}")
    assert validated.returncode == 1
    named = re.findall(r"pip install 'otel-zernel\[(\w+)\]'", validated.stderr)
    assert sorted(named) == ["csv", *["gateway"] * 5, "kafka", "kafka", "store"]
    assert set(named) < EXTRAS
    assert len(validated.stderr.splitlines()) == len(named) + 1, "a sentence each"
    packages = next((environment.folder / "lib").glob("python*/site-packages"))
    assert (environment.folder / "share/man/man1/otel-zernel.1").is_file()
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if not name.endswith("/RECORD") and ".data/" not in name]
        assert [name for name in names if (packages / name).read_bytes() != archive.read(name)] == []


@pytest.mark.soak
@pytest.mark.parametrize("minor", NEWER)
def test_the_wheel_works_on_each_newer_python(minor: int, wheel: Path, tmp_path: Path) -> None:
    environment = CleanEnvironment(python_of(minor), tmp_path)
    environment.install(wheel)
    environment.assert_base_works()
    environment.assert_quickstart_runs()


@pytest.mark.soak
@pytest.mark.parametrize("platforms", PLATFORMS.values(), ids=PLATFORMS)
@pytest.mark.parametrize("minor", [11, *NEWER[:-1]])
def test_every_package_of_the_base_has_a_wheel_for_other_machines(
    minor: int, platforms: tuple[str, ...], wheel: Path, tmp_path: Path
) -> None:
    """Nothing has to be compiled there. pip uses the markers of this Python, which do not fit 3.14."""
    chosen = [f"--platform={platform}" for platform in platforms]
    options = ["--only-binary=:all:", f"--python-version=3.{minor}", "--dry-run", "--ignore-installed", "--quiet"]
    command = [sys.executable, "-m", "pip", "install", "--target", str(tmp_path), *options, *chosen, str(wheel)]
    resolved = subprocess.run(command, capture_output=True, text=True, check=False)
    assert resolved.returncode == 0, resolved.stderr


def test_the_page_of_the_package_has_addresses_that_an_index_can_follow(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        text = archive.read(name).decode("utf-8")
    headers, _, page = text.partition("\n\n")
    version = re.findall(r"^Version: (.*)$", headers, re.MULTILINE)[0]
    urls = dict(re.findall(r"^Project-URL: (\w+), (.*)$", headers, re.MULTILINE))
    assert urls == {
        "Documentation": f"{REPOSITORY}/blob/v{version}/docs/tutorial.md",
        "Changelog": f"{REPOSITORY}/blob/v{version}/CHANGELOG.md",
        "Source": REPOSITORY,
        "Issues": f"{REPOSITORY}/issues",
    }
    links = [link.partition("#")[0] for link in re.findall(r"\]\(([^)\s]+)\)", page)]
    assert links
    ours = [link for link in links if link.startswith(f"{REPOSITORY}/")]
    assert [link for link in links if not link.startswith(("https://", "http://")) and link] == []
    files = [re.sub(rf"^{REPOSITORY}/(blob|raw)/v{version}/", "", link) for link in ours]
    assert [file for file in files if not (ROOT / file).exists()] == []


def test_the_readme_promises_no_package_of_an_index() -> None:
    promised = re.findall(r"pip install [^\n]*", README)
    assert promised
    assert [line for line in promised if re.search(r"install ['\"]?otel[-_]zernel", line)] == []
    assert re.search(r"<!-- install -->\n```\npython3 -m pip wheel --no-deps --wheel-dir dist \.", README)


def test_the_readme_names_every_extra() -> None:
    table = README.partition("| extra | for |\n")[2].partition("\n\n")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) == EXTRAS


def test_the_wheel_has_the_name_that_the_readme_says(wheel: Path) -> None:
    assert f"dist/{wheel.name}" in README


def test_the_wheel_has_samples_programs_and_types(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    registry = Registry.installed()
    for kind in KINDS:
        for type_ in registry.aliases(kind):
            folder = registry.load(kind, type_).__module__.rpartition(".")[0].split(".")[:2]
            assert f"{'/'.join(folder)}/sample.yaml" in names
    for source in (ROOT / "receivers").rglob("*.bpf.o"):
        assert str(source.relative_to(ROOT / "receivers")) in names
    assert {name for name in names if name.endswith("py.typed")} >= {"otel_zernel/py.typed"}
    assert [name for name in names if name.startswith(("tests/", "docs/", "benchmarks/"))] == []
    licenses = {name.rpartition("/")[2] for name in names if ".dist-info/licenses/" in name}
    assert licenses == {"LICENSE", "GPL-2.0-only.txt", "BSD-2-Clause.txt"}


def test_the_installed_wheel_runs_from_any_folder(wheel: Path, tmp_path: Path) -> None:
    """Its dependencies are those of this environment."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")], check=True)
    packages = next((tmp_path / "venv" / "lib").glob("python*/site-packages"))
    zipfile.ZipFile(wheel).extractall(packages)
    # Behind the wheel on the path, and without the editable installation of this checkout, which is in .pth files.
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join((str(packages), sysconfig.get_paths()["purelib"]))}
    python = tmp_path / "venv" / "bin" / "python"
    (tmp_path / "in.csv").write_text("timestamp, uuid, power.draw [W]\n2026/11/22 13:00:00, GPU-1, 300.00 W\n")
    config = f"""yaml:
receivers: {{csv: {{files: [{tmp_path}/in.csv]}}}}
exporters: {{file: {{path: {tmp_path}/out.jsonl}}}}
service: {{telemetry: {{metrics: {{level: none}}}}, pipelines: {{m: {{receivers: [csv], exporters: [file]}}}}}}
"""
    command = [str(python), "-P", "-m", "otel_zernel", "run", "--exit-when-done", "--config", config]
    done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "hw.power" in (tmp_path / "out.jsonl").read_text()
    where = subprocess.run(
        [python, "-P", "-c", "import otel_zernel_receivers.csv as csv; print(csv.__file__)"],
        cwd=tmp_path,
        env=environ,
        capture_output=True,
        text=True,
        check=True,
    )
    assert where.stdout.startswith(str(packages))
