"""The capabilities that docs/deploy.md names for `bcc` are enough without root, and none is superfluous."""

import re
from collections.abc import Generator, Sequence
from contextlib import closing

import pytest

from docs.catalogue import ROOT
from tests.deploy.unprivileged import collector_with
from tests.free_ports import free_port
from tests.receivers.bcc.programs import kernel_headers, require_bcc

(_ROW,) = re.findall(r"^\| \[bcc\].*", (ROOT / "docs" / "deploy.md").read_text("utf-8"), re.MULTILINE)
*NAMED, FOR_OTHER_CONTAINERS = re.findall(r"CAP_\w+", _ROW)
"""CAP_SYS_ADMIN, the one for tracepoints, and the one for files of other containers."""


def output(example: str, capabilities: Sequence[str], monkeypatch: pytest.MonkeyPatch) -> Generator[str]:
    """The lines that the collector prints with this example. It ends if it cannot start."""
    monkeypatch.setenv("KERNEL_HEADERS", kernel_headers() or "null")
    monkeypatch.setenv("PROBE_FUNCTION", "read")  # of the C library: every process calls it
    port = f"yaml:exporters: {{prometheus: {{endpoint: 'localhost:{free_port()}'}}}}"
    quiet = "yaml:service: {telemetry: {metrics: {level: none}}}"
    configs = [f"--config={ROOT / 'examples' / example}", f"--config={port}", f"--config={quiet}"]
    with collector_with(capabilities, "run", *configs) as process:
        assert process.stdout
        yield from process.stdout


def scrapes(example: str, capabilities: Sequence[str], monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether the example compiles, attaches its probes and is read."""
    with closing(output(example, capabilities, monkeypatch)) as lines:
        return any(line.startswith("Metrics {") for line in lines)


@pytest.mark.parametrize("example", ["bcc_uprobe.yaml", "bcc_python_usdt.yaml"])
def test_uprobes_and_static_probes_need_only_the_first(example: str, monkeypatch: pytest.MonkeyPatch) -> None:
    require_bcc()
    assert scrapes(example, NAMED[:1], monkeypatch)


def test_tracepoints_need_both(monkeypatch: pytest.MonkeyPatch) -> None:
    require_bcc()
    assert scrapes("bcc_io.yaml", NAMED, monkeypatch)
    for missing in NAMED:
        assert not scrapes("bcc_io.yaml", [name for name in NAMED if name != missing], monkeypatch)


def test_the_missing_capability_for_tracepoints_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiler's errors do not show that a file could not be read."""
    require_bcc()
    printed = "".join(output("bcc_io.yaml", NAMED[:1], monkeypatch))
    assert "the description of the tracepoint block:block_rq_issue cannot be read" in printed
    assert f"grant it the capability {NAMED[1]}" in printed
    assert "does not compile" not in printed
