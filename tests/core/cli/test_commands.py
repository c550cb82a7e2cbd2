"""The commands as a user runs them: standard input, print-config, and the list of components."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from otel_zernel.registry import KINDS, Registry
from tests.core.cli.running import command

EXAMPLES = sorted((Path(__file__).parents[3] / "examples").glob("*.yaml"))
CONFIG = """
receivers: {{csv: {{files: [{rows}], layout: dcgm}}}}
exporters: {{debug: {{}}}}
service: {{telemetry: {{metrics: {{level: none}}}}, pipelines: {{metrics: {{receivers: [csv], exporters: [debug]}}}}}}
"""


@pytest.fixture(autouse=True)
def environment_of_the_examples(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("OTLP_ENDPOINT", "backend:4317"), ("OTLP_TOKEN", "x"), ("ZERNEL_TOKEN", "x")):
        monkeypatch.setenv(name, value)


@pytest.fixture
def config(tmp_path: Path) -> str:
    (tmp_path / "rows.csv").write_text("timestamp,metric_name,value,uuid\n")
    return CONFIG.format(rows=tmp_path / "rows.csv")


def test_a_configuration_comes_from_standard_input(config: str) -> None:
    done = command("validate", "--config", "-", text=config)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_mistake_in_standard_input_has_its_line(config: str) -> None:
    done = command("validate", "--config", "-", text=config.replace("layout", "layuot"))
    assert done.returncode == 1
    assert "(standard input:2)" in done.stderr


def test_standard_input_that_is_no_text_is_one_sentence() -> None:
    program = [sys.executable, "-m", "otel_zernel", "validate", "--config", "-"]
    done = subprocess.run(program, input=b"a: 1\n\xff", capture_output=True, timeout=60, check=False)
    assert done.returncode == 1
    assert b"cannot read standard input: line 2 is not UTF-8 text" in done.stderr


def test_a_reload_uses_the_text_of_standard_input_again(config: str) -> None:
    following = config.replace("layout: dcgm", "layout: dcgm, follow: true")
    program = [sys.executable, "-m", "otel_zernel", "run", "--config", "-"]
    with subprocess.Popen(program, text=True, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as collector:
        assert collector.stdin
        assert collector.stderr
        collector.stdin.write(following)
        collector.stdin.close()
        lines = iter(collector.stderr.readline, "")
        assert any("ready" in line for line in lines)
        collector.send_signal(signal.SIGHUP)
        assert any("Reloaded the configuration" in line for line in lines)
        collector.terminate()
        assert "refused" not in collector.stderr.read()
    assert collector.returncode == 0


def test_an_invalid_merge_is_printed_with_its_mistakes_on_stderr(config: str) -> None:
    arguments = ["--set", "exporters.debug.verbostiy=basic", "--set", "exporters.otlp_http.headers={key: hunter2}"]
    done = command("print-config", "--config", f"yaml:{config}", "--config", "/no/such.yaml", *arguments)
    assert done.returncode == 1
    shown = yaml.safe_load(done.stdout)
    assert shown["exporters"]["debug"] == {"verbostiy": "basic"}
    assert shown["receivers"]["csv"]["layout"] == "dcgm"
    assert 'cannot read "/no/such.yaml"' in done.stderr
    assert "hunter2" not in done.stdout + done.stderr


@pytest.mark.parametrize(
    "secret",
    [
        "extensions.bearertokenauth.token=hunter2",
        "extensions.basicauth.client_auth={password: hunter2}",
        "exporters.otlp_http.headers={authorization: hunter2}",
        "exporters.otlp_http.endpoint=https://host?token=hunter2",
        "exporters.otlp_http.tls.key_pem=hunter2",
    ],
)
def test_an_invalid_configuration_is_printed_without_secrets_unless_they_are_references(secret: str) -> None:
    arguments = ["--config", "yaml:unknown: {}", "--set", secret]
    assert "hunter2" not in command("print-config", *arguments).stdout
    assert "hunter2" in command("print-config", *arguments, "--mode", "unredacted").stdout
    by_reference = [argument.replace("hunter2", "${env:X}") for argument in arguments]
    assert "${env:X}" in command("print-config", *by_reference).stdout or "endpoint" in secret


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_all_options_with_their_defaults_are_the_same_configuration(example: Path, tmp_path: Path) -> None:
    full = command("print-config", "--config", str(example), "--defaults", "--mode", "unredacted").stdout
    (tmp_path / "full.yaml").write_text(full)
    again = command("print-config", "--config", str(tmp_path / "full.yaml"), "--defaults", "--mode", "unredacted")
    assert again.returncode == 0, again.stderr
    assert again.stdout == full
    assert full.count("# ") > 20


def test_sections_that_are_off_stay_off_in_the_configuration_with_all_options(tmp_path: Path) -> None:
    config = "receivers: {otlp: {protocols: {grpc: }}}\nexporters: {debug: }\n"
    config += "service: {pipelines: {traces: {receivers: [otlp], exporters: [debug]}}}\n"
    full = command("print-config", "--config", "-", "--defaults", text=config).stdout
    assert "    grpc:" in full
    assert "http:" not in full
    assert command("print-config", "--config", "-", "--defaults", text=full).stdout == full


def test_defaults_hide_secrets(config: str) -> None:
    arguments = ["--set", "exporters.otlp_http={endpoint: 'https://h:1', headers: {a: hunter2}}", "--defaults"]
    shown = command("print-config", "--config", f"yaml:{config}", *arguments).stdout
    assert "hunter2" not in shown
    assert "    # Headers of every request. Values are never printed.\n" in shown


@pytest.mark.parametrize(
    ("kind", "type_"), [(kind, type_) for kind in KINDS for type_ in Registry.installed().aliases(kind)]
)
def test_every_component_has_a_description_of_one_line(kind: str, type_: str) -> None:
    description = Registry.installed().load(kind, type_).description()  # type: ignore[arg-type]  # an item of KINDS
    assert 20 < len(description) <= 120
    assert description.endswith(".")
    assert description[0].isupper()


def test_components_prints_the_descriptions() -> None:
    listed = yaml.safe_load(command("components").stdout)
    (csv,) = (one for one in listed["receivers"] if one["name"] == "csv")
    assert csv["description"] == Registry.installed().load("receivers", "csv").description()
