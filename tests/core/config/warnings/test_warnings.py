"""`validate` warns of a valid configuration that probably does not do what its author wants.

A file with secrets in plain text that every user may read is warned of at the start.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from otel_zernel.config.schema import read_settings
from tests.core.cli.running import command
from tests.core.config.components import MINIMAL, REGISTRY

CSV = "receivers: {csv: {files: [rows.csv], layout: dcgm}}\n"
DEBUG = "exporters: {debug: {}}\n"
PIPELINE = "service: {pipelines: {metrics: {receivers: [csv], exporters: [debug]}}}\n"


def validated(config: str, folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """In a folder with the file rows.csv."""
    (folder / "rows.csv").write_text("x\n")
    (folder / "config.yaml").write_text(config)
    return command("validate", "--config", "config.yaml", *options, folder=folder)


def warnings_of(config: str, folder: Path) -> list[str]:
    done = validated(config, folder)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    return done.stderr.splitlines()


def test_a_configuration_without_warnings_is_valid_in_silence_also_with_strict(tmp_path: Path) -> None:
    done = validated(CSV + DEBUG + PIPELINE, tmp_path, "--strict")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_strict_makes_warnings_errors(tmp_path: Path) -> None:
    done = validated(CSV.replace("rows", "other") + DEBUG + PIPELINE, tmp_path, "--strict")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("Error: the configuration has warnings")
    assert 'receivers::csv::files::0: "other.csv" does not exist in the working directory' in done.stderr


def test_unused_components_and_extensions_are_named_with_file_and_line(tmp_path: Path) -> None:
    unused = CSV.replace("{csv:", "{otlp: {protocols: {http: {}}}, csv:") + DEBUG
    assert warnings_of(unused + "extensions: {health_check: {}}\n" + PIPELINE, tmp_path) == [
        "Warning: receivers::otlp: is in no pipeline, so it does not run; add it to one, or remove it (config.yaml:1)",
        (
            'Warning: extensions::health_check: does not run; add "health_check" to service::extensions, or remove it '
            "(config.yaml:3)"
        ),
    ]


@pytest.mark.parametrize(
    ("name", "signal"),
    [("metric", "metrics"), ("Metrics", "metrics"), ("trace/gpu", "traces"), ("span", "traces"), ("log_files", "logs")],
)
def test_a_pipeline_that_only_looks_like_one_of_a_signal_is_a_warning(name: str, signal: str, tmp_path: Path) -> None:
    (warning,) = warnings_of(CSV + DEBUG + PIPELINE.replace("metrics:", f"{name}:"), tmp_path)
    assert warning.startswith(f"Warning: service::pipelines::{name}: the pipeline carries all signals; ")
    assert f"name it {signal} or {signal}/NAME" in warning


@pytest.mark.parametrize("name", ["metrics", "metrics/2", "training", "m", "logistics", "metrics2"])
def test_other_names_of_pipelines_are_no_warning(name: str, tmp_path: Path) -> None:
    assert warnings_of(CSV + DEBUG + PIPELINE.replace("metrics:", f"{name}:"), tmp_path) == []


def test_an_unset_variable_is_a_warning(tmp_path: Path) -> None:
    config = CSV + DEBUG.replace("{}", "{metrics: ['x${env:NO_SUCH_VARIABLE}']}") + PIPELINE
    (warning,) = warnings_of(config, tmp_path)
    assert 'environment variable "NO_SUCH_VARIABLE" is not set' in warning


def test_a_url_that_gets_its_path_twice_is_a_warning(tmp_path: Path) -> None:
    exporter = "exporters: {otlp_http: {endpoint: 'https://host:4318/v1/metrics'}}\n"
    (warning,) = warnings_of(CSV + exporter + PIPELINE.replace("debug", "otlp_http"), tmp_path)
    assert warning.startswith("Warning: exporters::otlp_http::endpoint: /v1/metrics is appended to it once more; ")
    assert "metrics_endpoint" in warning


def test_a_grpc_endpoint_with_a_path_is_an_error(tmp_path: Path) -> None:
    exporter = "exporters: {otlp_grpc: {endpoint: 'https://host:4317/v1/metrics'}}\n"
    done = validated(CSV + exporter + PIPELINE.replace("debug", "otlp_grpc"), tmp_path)
    assert done.returncode == 1
    assert "write host:4317" in done.stderr


@pytest.mark.parametrize(
    ("config", "path"),
    [
        ("receivers: {csv: {files: ['*.txt'], layout: dcgm}}", "receivers::csv::files::0: no file matches"),
        ("receivers: {otlp_json_file: {include: [no.json]}}", 'receivers::otlp_json_file::include::0: "no.json"'),
        (
            "receivers: {otlp: {protocols: {http: {tls: {cert_file: no.pem, key_file: rows.csv}}}}}",
            'receivers::otlp::protocols::http::tls::cert_file: "no.pem" does not exist',
        ),
        (
            "exporters: {otlp_http: {endpoint: 'https://h:1', tls: {ca_file: /no/ca.pem}}}",
            'exporters::otlp_http::tls::ca_file: "/no/ca.pem" does not exist; create it, or correct the path',
        ),
        (
            "extensions: {basicauth: {htpasswd: {file: users}}}",
            'extensions::basicauth::htpasswd::file: "users" does not exist',
        ),
        ("extensions: {bearertokenauth: {filename: token}}", 'extensions::bearertokenauth::filename: "token"'),
    ],
)
def test_a_missing_file_is_a_warning(config: str, path: str, tmp_path: Path) -> None:
    kind, type_ = path.split("::")[:2]
    parts = {"receivers": CSV, "exporters": DEBUG, kind: f"{config}\n"}
    used = {"receivers": "csv", "exporters": "debug", kind: type_}
    pipelines = f"{{metrics: {{receivers: [{used['receivers']}], exporters: [{used['exporters']}]}}}}"
    service = f"service: {{extensions: [{used.get('extensions', '')}], pipelines: {pipelines}}}\n"
    (warning,) = warnings_of("".join(parts.values()) + service, tmp_path)
    assert path in warning


def test_run_logs_the_warnings(tmp_path: Path) -> None:
    config = CSV + DEBUG + "extensions: {health_check: {}}\n" + PIPELINE
    (tmp_path / "rows.csv").write_text("x\n")
    words = [sys.executable, "-m", "otel_zernel", "run", "--exit-when-done", "--config", f"yaml:{config}"]
    words += ["--set", "service.telemetry.metrics.level=none"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert 'extensions::health_check: does not run; add "health_check" to service::extensions' in done.stderr


SECRET = "exporters: {out: {endpoint: here, token: hunter2}}"


def warnings_of_file(path: Path, text: str, mode: int, *overrides: str) -> tuple[str, ...]:
    path.write_text(text)
    path.chmod(mode)
    environ = {"TOKEN": "hunter2"}
    return read_settings([f"yaml:{MINIMAL}", str(path)], overrides, environ, REGISTRY).warnings


@pytest.mark.parametrize(("mode", "is_warned_of"), [(0o644, True), (0o604, True), (0o640, False), (0o600, False)])
def test_the_files_mode_decides(mode: int, is_warned_of: bool, tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    expected = (
        f'"{path}" has secrets in plain text (exporters::out::token), and every user of this machine can read it: '
        "run chmod o-r on it, or write ${env:NAME} or ${file:PATH} in place of the secrets"
    )
    assert warnings_of_file(path, SECRET, mode) == ((expected,) if is_warned_of else ())


@pytest.mark.parametrize(
    "text",
    [
        "exporters: {out: {endpoint: here}}",
        "exporters: {out: {endpoint: here, token: '${env:TOKEN}'}}",
        "exporters: {out: {endpoint: here, token: 'Bearer ${TOKEN}'}}",
        "exporters: {out: {endpoint: here, token: ''}}",
    ],
)
def test_a_file_without_plain_secrets_may_be_readable(text: str, tmp_path: Path) -> None:
    assert warnings_of_file(tmp_path / "config.yaml", text, 0o644) == ()


def test_a_secret_of_the_command_line_is_in_no_file(tmp_path: Path) -> None:
    text = "exporters: {out: {endpoint: here}}"
    assert warnings_of_file(tmp_path / "config.yaml", text, 0o644, "exporters.out.token=hunter2") == ()


def test_many_secrets_are_one_warning_without_their_values(tmp_path: Path) -> None:
    headers = ", ".join(f"h{n}: hunter2" for n in range(9))
    (warning,) = warnings_of_file(tmp_path / "c", f"exporters: {{out: {{endpoint: x, headers: {{{headers}}}}}}}", 0o644)
    assert (
        "(exporters::out::headers::h0, exporters::out::headers::h1, exporters::out::headers::h2 and 6 more)" in warning
    )
    assert "hunter2" not in warning
