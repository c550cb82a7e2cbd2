"""An error is `Error: …` on stderr, with exit status 2 for a wrong command line and 1 for others."""

import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml

from otel_zernel.cli import main
from otel_zernel.component import Component, Extension, Finding
from otel_zernel.registry import Registry
from tests.waiting import wait_for

GOOD = """
receivers: {csv: {files: [/data/*.csv], layout: dcgm}}
exporters: {otlp_http: {endpoint: "http://localhost:4318", headers: {authorization: Bearer abc}}}
service: {pipelines: {metrics: {receivers: [csv], exporters: [otlp_http]}}}
"""


@pytest.fixture
def good(tmp_path: Path) -> str:
    path = tmp_path / "good.yaml"
    path.write_text(GOOD)
    path.chmod(0o600)  # it has a secret
    return str(path)


def test_validate_prints_nothing_for_a_valid_configuration(good: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "--config", good, "--set", f"receivers.csv.files=[{good}]"]) == 0
    assert capsys.readouterr() == ("", "")


def test_validate_lists_every_mistake_with_path_file_and_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text(GOOD.replace("layout: dcgm", "layuot: dcgm").replace("exporters: [otlp_http]", "exporters: [otlp]"))
    assert main(["validate", "--config", str(bad)]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    first, *mistakes = printed.err.splitlines()
    assert first == "Error: invalid configuration:"
    assert len(mistakes) == 2
    assert 'receivers::csv::layuot: unknown key "layuot"; did you mean "layout"?' in mistakes[0]
    assert mistakes[0].endswith(f"({bad}:2)")
    assert 'service::pipelines::metrics: references exporter "otlp" which is not configured' in mistakes[1]


def test_a_mistake_in_a_url_is_printed_without_its_token(capsys: pytest.CaptureFixture[str]) -> None:
    main(["validate", "--config", f"yaml:{GOOD}", "--set", "exporters.otlp_http.endpoint=htps://host?token=hunter2"])
    printed = capsys.readouterr().err
    assert "'htps://host?" in printed
    assert "[REDACTED]" in printed
    assert "hunter2" not in printed


def test_several_configurations_merge_and_set_wins(good: str, capsys: pytest.CaptureFixture[str]) -> None:
    override = "yaml:receivers: {csv: {batch_size: 7}}"
    arguments = ["--config", good, "--config", override, "--set", "receivers.csv.layout=wide"]
    assert main(["print-config", *arguments]) == 0
    shown = yaml.safe_load(capsys.readouterr().out)
    assert shown["receivers"]["csv"] == {"files": ["/data/*.csv"], "layout": "wide", "batch_size": 7}


def test_secrets_are_shown_only_on_request(good: str, capsys: pytest.CaptureFixture[str]) -> None:
    main(["print-config", "--config", good])
    assert "abc" not in capsys.readouterr().out
    main(["print-config", "--config", good, "--mode", "unredacted"])
    assert "Bearer abc" in capsys.readouterr().out


def test_components_lists_types_stability_and_aliases(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["components"]) == 0
    listed = yaml.safe_load(capsys.readouterr().out)
    exporters = {one["name"]: one for one in listed["exporters"]}
    assert exporters["otlp_http"]["aliases"] == ["otlphttp"]
    assert exporters["otlp_http"]["stability"] == "beta"
    assert exporters["live"]["stability"] == "alpha"
    assert "csv" in {one["name"] for one in listed["receivers"]}


def test_a_sample_can_be_printed_and_used(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["components", "--sample", "percentiles"]) == 0
    assert set(yaml.safe_load(capsys.readouterr().out)) == {"percentiles"}


class FakeExtension(Extension):
    """Reports the findings that a test sets. An exception among them is raised."""

    findings: Iterable[Finding | Exception] = ()
    missing_package: str | None = None

    @classmethod
    def missing(cls) -> str | None:
        return cls.missing_package

    @classmethod
    def examine(cls, config: Any = None) -> Iterable[Finding]:
        for finding in cls.findings:
            if isinstance(finding, Exception):
                raise finding
            yield finding


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> type[FakeExtension]:
    """The only installed component."""

    class Fresh(FakeExtension):
        pass

    registry = Registry({"extensions": {"fake": lambda: Fresh}})
    monkeypatch.setattr(Registry, "installed", lambda: registry)
    return Fresh


def test_doctor_aligns_and_marks_the_findings(fake: type[FakeExtension], capsys: pytest.CaptureFixture[str]) -> None:
    fake.findings = [Finding("kernel", "Linux 6"), Finding("BTF", "available", ok=True)]
    assert main(["doctor"]) == 0
    assert capsys.readouterr().out == "extensions::fake\n      kernel  Linux 6\n  ok  BTF     available\n"


def test_doctor_prints_details_with_verbose(fake: type[FakeExtension], capsys: pytest.CaptureFixture[str]) -> None:
    fake.findings = [Finding("attaching", "does not work", details=("R2 type=mem", "escape \x1b[2J"))]
    assert main(["doctor"]) == 0
    assert "R2 type=mem" not in capsys.readouterr().out
    assert main(["doctor", "--verbose"]) == 0
    finding, *details = capsys.readouterr().out.splitlines()[1:]
    assert finding == "      attaching  does not work"
    assert details == ["        R2 type=mem", r"        escape \x1b[2J"]


def test_doctor_has_status_1_if_a_prerequisite_is_missing(
    fake: type[FakeExtension], capsys: pytest.CaptureFixture[str]
) -> None:
    fake.findings = [Finding("driver", "is missing; install it", ok=False)]
    assert main(["doctor"]) == 1
    assert "  !!  driver  is missing; install it\n" in capsys.readouterr().out


def test_doctor_reports_missing_packages(fake: type[FakeExtension], capsys: pytest.CaptureFixture[str]) -> None:
    fake.missing_package = "pip install patience"
    assert main(["doctor"]) == 1
    assert "!!  packages  pip install patience" in capsys.readouterr().out


def test_doctor_reports_an_exception_of_a_component(
    fake: type[FakeExtension], capsys: pytest.CaptureFixture[str]
) -> None:
    fake.findings = [Finding("first", "fine", ok=True), OSError("ouch")]
    assert main(["doctor"]) == 1
    printed = capsys.readouterr().out
    assert "ok  first" in printed
    assert "OSError: ouch; report this bug to the component's author" in printed


def test_doctor_prints_no_escape_sequences(fake: type[FakeExtension], capsys: pytest.CaptureFixture[str]) -> None:
    fake.findings = [Finding("process", "evil \x1b[2J \udc80")]
    assert main(["doctor"]) == 0
    assert r"evil \x1b[2J \udc80" in capsys.readouterr().out


def test_doctor_examines_only_the_components_of_a_configuration(good: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--config", good]) == 0
    printed = capsys.readouterr().out
    assert printed == "Nothing is missing for 2 components\n  receivers::csv, exporters::otlp_http\n"


def test_doctor_examines_every_component_with_its_own_configuration(good: str, monkeypatch: pytest.MonkeyPatch) -> None:
    examined: list[int] = []

    def examine(cls: type[Component], config: Any = None) -> Iterable[Finding]:
        examined.append(config.batch_size)
        return ()

    monkeypatch.setattr(Registry.installed().load("receivers", "csv"), "examine", classmethod(examine))
    other = "yaml:receivers: {csv/other: {files: [/data/*.csv], layout: dcgm, batch_size: 7}}"
    assert main(["doctor", "--config", good, "--config", other, "--set", "receivers.csv.batch_size=8"]) == 0
    assert examined == [8, 7]


@pytest.mark.parametrize(
    ("arguments", "wanted", "words"),
    [
        (["rnu"], 2, 'unknown command "rnu"; did you mean "run"?'),
        (["vaildate"], 2, 'unknown command "vaildate"; did you mean "validate"?'),
        (["wyh"], 2, 'did you mean "why"?'),
        (["run"], 2, "run needs a configuration, such as --config config.yaml"),
        (["run", "--set", "a.b=1"], 1, "unknown section"),
        (["print-config"], 2, "print-config needs a configuration"),
        (["why", "--fro=1s"], 2, 'unknown argument "--fro"; did you mean "--for"?'),
        (["why", "--fro", "1s"], 2, 'unknown argument "--fro"; did you mean "--for"?'),
        (["why", "--for", "soon"], 2, "--for"),
        (["--vresion"], 2, 'unknown argument "--vresion"; did you mean "--version"?'),
        (["queue", "export", "x", "--ouptut", "y"], 2, 'did you mean "--output"?'),
        (["run", "--config", "yaml:", "--exit-when-don"], 2, 'did you mean "--exit-when-done"?'),
        (["validate", "--confg", "x"], 2, 'did you mean "--config"?'),
        (["queue", "inpsect"], 2, "inpsect"),
        (["validate", "--config", "/no/such.yaml"], 1, "/no/such.yaml"),
        (["validate", "/no/such.yaml"], 1, "/no/such.yaml"),
        (["components", "--sample", "csvv"], 1, "csvv"),
        (["print-config", "--config", "yaml:{]"], 1, "yaml"),
        (["doctor", "--config", "/no/such.yaml"], 1, "/no/such.yaml"),
        (["doctor", "--set", "receivers.csvv.files=x"], 1, "csvv"),
    ],
)
def test_the_exit_status_separates_a_wrong_command_line_from_other_errors(
    arguments: list[str], wanted: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        status = main(arguments)
    except SystemExit as exited:
        status = int(exited.code or 0)
    printed = capsys.readouterr()
    assert (status, printed.out) == (wanted, "")
    assert printed.err.startswith("Error: ")
    assert words in printed.err
    assert "Traceback" not in printed.err


@pytest.mark.parametrize(
    "arguments",
    [
        ["components"],
        ["components", "--sample", "csv"],
        ["print-config", "CONFIG"],
        ["doctor", "CONFIG"],
        ["--help"],
        ["run", "--help"],
        ["--version"],
    ],
)
def test_a_result_that_cannot_be_written_is_one_sentence(arguments: list[str], good: str) -> None:
    words = [good if word == "CONFIG" else word for word in arguments]
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "otel_zernel", *words], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    sentence = "Error: cannot write the result to standard output: No space left on device\n"
    assert (ended.returncode, ended.stderr) == (1, sentence)


def test_a_closed_output_is_one_sentence() -> None:
    command = f"{sys.executable} -m otel_zernel components >&-"
    ended = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    sentence = "Error: standard output is closed, and the result needs it: redirect it to a file\n"
    assert (ended.returncode, ended.stderr) == (1, sentence)


@pytest.mark.parametrize(("words", "shown"), [([], "usage: otel-zernel"), (["help", "run"], "usage: otel-zernel run")])
def test_no_command_and_help_print_the_help(words: list[str], shown: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith(shown)


def test_a_configuration_needs_no_option(good: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", good, "--set", f"receivers.csv.files=[{good}]"]) == 0
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    "words",
    [
        ["FIRST", "--config", "SECOND"],
        ["--config", "FIRST", "SECOND"],
        ["FIRST", "SECOND"],
        ["--config", "FIRST", "--config", "SECOND"],
    ],
)
def test_the_last_configuration_on_the_command_line_wins(
    words: list[str], good: str, capsys: pytest.CaptureFixture[str]
) -> None:
    uris = {"FIRST": good, "SECOND": "yaml:receivers: {csv: {layout: nvidia_smi}}"}
    assert main(["print-config", *(uris.get(word, word) for word in words)]) == 0
    assert yaml.safe_load(capsys.readouterr().out)["receivers"]["csv"]["layout"] == "nvidia_smi"


def test_ctrl_c_before_the_collector_handles_it_prints_no_traceback() -> None:
    program = """
import sys, types
def interrupted(): raise KeyboardInterrupt
sys.modules["otel_zernel.cli"] = types.SimpleNamespace(main=interrupted)
from otel_zernel.__main__ import main
sys.exit(main())
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "")


def handles_ctrl_c(pid: int) -> bool:
    status = Path(f"/proc/{pid}/status").read_text()
    caught = next(line for line in status.splitlines() if line.startswith("SigCgt")).split()[1]
    return bool(int(caught, 16) & 1 << signal.SIGINT - 1)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_ctrl_c_ends_doctor_without_a_traceback() -> None:
    """From its first examination on, doctor does not handle the signal, as libraries in C would lose it."""
    statuses: list[int] = []
    while -signal.SIGINT not in statuses and len(statuses) < 5:  # doctor may end before the signal arrives
        command = [sys.executable, "-m", "otel_zernel", "doctor"]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as doctor:
            wait_for(lambda pid=doctor.pid: handles_ctrl_c(pid))  # type: ignore[misc]
            wait_for(lambda pid=doctor.pid: not handles_ctrl_c(pid))  # type: ignore[misc]
            doctor.send_signal(signal.SIGINT)
            _, printed = doctor.communicate()
        statuses.append(doctor.returncode)
        assert "Traceback" not in printed
    assert statuses[-1] == -signal.SIGINT
