"""A file with secrets in plain text that every user may read is warned of at the start."""

from pathlib import Path

import pytest

from otel_zernel.config.schema import read_settings
from tests.core.config.components import MINIMAL, REGISTRY

SECRET = "exporters: {out: {endpoint: here, token: hunter2}}"


def warnings_of(path: Path, text: str, mode: int, *overrides: str) -> tuple[str, ...]:
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
    assert warnings_of(path, SECRET, mode) == ((expected,) if is_warned_of else ())


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
    assert warnings_of(tmp_path / "config.yaml", text, 0o644) == ()


def test_a_secret_of_the_command_line_is_in_no_file(tmp_path: Path) -> None:
    text = "exporters: {out: {endpoint: here}}"
    assert warnings_of(tmp_path / "config.yaml", text, 0o644, "exporters.out.token=hunter2") == ()


def test_many_secrets_are_one_warning_without_their_values(tmp_path: Path) -> None:
    headers = ", ".join(f"h{n}: hunter2" for n in range(9))
    (warning,) = warnings_of(tmp_path / "c", f"exporters: {{out: {{endpoint: x, headers: {{{headers}}}}}}}", 0o644)
    assert (
        "(exporters::out::headers::h0, exporters::out::headers::h1, exporters::out::headers::h2 and 6 more)" in warning
    )
    assert "hunter2" not in warning
