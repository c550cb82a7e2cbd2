"""The wheel that the README builds has everything, and an sdist installs the same into a clean environment."""

import os
import re
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from docs.catalogue import ROOT
from otel_zernel.registry import KINDS, Registry
from tests.interop.conftest import miss

README = (ROOT / "README.md").read_text("utf-8")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built by the README's first command, in another folder."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), "."]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if "hatchling" in done.stderr and done.returncode:
        miss(f"pip cannot get hatchling, which builds the wheel: {done.stderr.splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    (built,) = folder.glob("*.whl")
    return built


def built_sdist(folder: Path) -> Path:
    command = [sys.executable, "-m", "build", "--quiet", "--sdist", "--outdir", str(folder), str(ROOT)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if "hatchling" in done.stdout and done.returncode:
        miss(f"pip cannot get hatchling, which builds the sdist: {done.stdout.splitlines()[-1]}")
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = folder.glob("*.tar.gz")
    return built


def test_the_newest_pip_installs_the_sdist_into_a_clean_environment_and_the_wheel_is_the_same(
    wheel: Path, tmp_path: Path
) -> None:
    python = tmp_path / "venv" / "bin" / "python"
    environ = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "VIRTUAL_ENV"}}

    def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
        command = [python, "-m", *arguments]
        return subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)

    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    upgraded = run("pip", "install", "--quiet", "--upgrade", "pip")
    if upgraded.returncode:
        miss(f"pip cannot get packages: {upgraded.stderr.splitlines()[-1]}")
    installed = run("pip", "install", "--quiet", "--no-compile", built_sdist(tmp_path))
    assert installed.returncode == 0, installed.stderr
    assert run("pip", "check").returncode == 0
    config = tmp_path / "config.yaml"
    config.write_text(
        """receivers: {otlp: {protocols: {http: }}}
exporters: {debug: }
service: {pipelines: {m: {receivers: [otlp], exporters: [debug]}}}
"""
    )
    validated = run("otel_zernel", "validate", config)
    assert validated.returncode == 0, validated.stderr
    assert run("otel_zernel", "why", "--help").returncode == 0
    packages = next((tmp_path / "venv" / "lib").glob("python*/site-packages"))
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if not name.endswith("/RECORD")]
        assert [name for name in names if (packages / name).read_bytes() != archive.read(name)] == []


def test_the_readme_promises_no_package_of_an_index() -> None:
    promised = re.findall(r"pip install [^\n]*", README)
    assert promised
    assert [line for line in promised if re.search(r"install ['\"]?otel[-_]zernel", line)] == []
    assert re.search(r"<!-- install -->\n```\npython3 -m pip wheel --no-deps --wheel-dir dist \.", README)


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
