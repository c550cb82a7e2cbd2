"""Heavy packages are imported only by configurations that need them, so that the collector starts quickly."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.collectors import ROOT

HEAVY = [
    *("encodings.idna", "grpc", "httpx", "numpy", "opentelemetry.sdk", "passlib", "psutil", "pyarrow", "re2", "torch"),
    *("otel_zernel_libraries.gpu_names.dcgm", "uvicorn", "websockets", "numpy.ma", "numpy.random", "scipy"),
]
PROGRAM = f"""
import json, logging, os, sys

def loaded():
    sys.stdout.flush()
    print(json.dumps([name for name in {[*HEAVY, "pydantic"]} if name in sys.modules]), flush=True)

class StopWhenReady(logging.Handler):
    def emit(self, record):
        if "ready" in record.getMessage():
            loaded()
            os._exit(0)

logging.getLogger("otel_zernel").addHandler(StopWhenReady())
from otel_zernel.__main__ import main
try:
    main()
finally:
    loaded()
"""
OTLP = "receivers: {otlp: {protocols: {http: {endpoint: localhost:0}}}}"
PAGE = "telemetry: {metrics: {readers: [{pull: {exporter: {prometheus: {host: localhost, port: 0}}}}]}}"
SILENT = "telemetry: {metrics: {level: none}}"


def imported(*arguments: str) -> set[str]:
    """The heavy packages that a command has imported, and pydantic; of `run` until it is ready."""
    command = [sys.executable, "-c", PROGRAM, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return set(json.loads(done.stdout.splitlines()[-1]))


def heavy_modules(*arguments: str) -> set[str]:
    return imported(*arguments) - {"pydantic"}


def config(exporter: str, telemetry: str, receivers: str = OTLP) -> str:
    receiver = receivers.partition("{")[2].partition(":")[0]
    pipeline = f"{{receivers: [{receiver}], exporters: [{exporter.partition(':')[0]}]}}"
    service = f"service: {{{telemetry}, pipelines: {{metrics: {pipeline}}}}}"
    return f"yaml:{receivers}\nexporters: {{{exporter}}}\n{service}"


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["run", "--help"], ["validate", "--help"]])
def test_help_imports_nothing_heavy_and_no_model(arguments: list[str]) -> None:
    assert imported(*arguments) == set()


@pytest.mark.parametrize("telemetry", [SILENT, PAGE])
def test_a_gateway_imports_nothing_heavy(telemetry: str) -> None:
    assert heavy_modules("run", "--config", config("debug: {}", telemetry)) == set()


def test_a_page_imports_its_server_with_the_first_connection() -> None:
    assert heavy_modules("run", "--config", config("prometheus: {endpoint: 'localhost:0'}", SILENT)) == set()


def test_an_api_imports_its_server_with_the_first_connection() -> None:
    api = "extensions: {api: {endpoint: 'localhost:0'}}\nservice: {extensions: [api]}"
    text = config("prometheus: {api: api}", SILENT)
    assert heavy_modules("run", "--config", text, "--config", f"yaml:{api}") == set()


@pytest.mark.parametrize("exporter", ["otlp_grpc: {endpoint: 'localhost:1'}", "otlp_http: {endpoint: 'http://h:1'}"])
def test_validation_imports_no_client(exporter: str) -> None:
    assert heavy_modules("validate", "--config", config(exporter, PAGE)) == set()


def test_csv_and_percentiles_need_no_numpy_until_the_collector_is_ready(tmp_path: Path) -> None:
    receivers = f"receivers: {{csv: {{files: [{tmp_path}/a.csv], layout: dcgm, follow: true}}}}"
    processors = "processors: {percentiles: {}}\nservice: {pipelines: {metrics: {processors: [percentiles]}}}"
    text = config("prometheus: {endpoint: 'localhost:0'}", SILENT, receivers)
    assert heavy_modules("run", "--config", text, "--config", f"yaml:{processors}") == set()


def test_the_causes_of_a_job_need_numpy_alone() -> None:
    """numpy.ma and numpy.random take 5 MB of an agent. NumPy imports numpy.ma for its medians and percentiles."""
    replay = "receivers: {otlp_json_file: {speed: 0, timestamps: recorded}}\nexporters: {debug: {verbosity: basic}}"
    silent = f"yaml:{replay}\nservice: {{{SILENT}}}"
    # a program that stops when it is ready has no causes yet
    program = PROGRAM.replace("addHandler(StopWhenReady())", "setLevel(logging.INFO)")
    command = [sys.executable, "-c", program, "run", "--exit-when-done"]
    options = ["--config", "examples/replay.yaml", "--config", silent]
    done = subprocess.run([*command, *options], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    assert "each 40.0 ms step" in done.stderr  # there are causes
    assert set(json.loads(done.stdout.splitlines()[-1])) == {"numpy", "pydantic"}


def test_ebpf_needs_numpy_alone() -> None:
    program = (
        f"import json, sys, otel_zernel_receivers.ebpf.session\nprint(json.dumps([*{{*{HEAVY}}} & {{*sys.modules}}]))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert json.loads(done.stdout) == ["numpy"]
