"""Records `otel-zernel demo` in a terminal: docs/demo.cast for asciinema, and docs/demo.svg made from it. `make docs`
calls it."""

import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Final

CAST: Final = Path(__file__).with_name("demo.cast")
PICTURE: Final = CAST.with_suffix(".svg")
_COLUMNS: Final = 80
_COMMAND: Final = "otel-zernel demo"
_PROMPT: Final = "\x1b[32m$\x1b[0m "
_TYPED, _WAITED, _PRINTED = 0.06, 0.8, 0.04
"""Seconds between two keys, until the answer, and between two lines. They are the same in each recording."""
_STYLES: Final = {
    "1": 'font-weight="bold"', "2": 'opacity="0.7"', "31": 'fill="#f14c4c"', "32": 'fill="#5fd068"',
    "33": 'fill="#e5c07b"', "34": 'fill="#6fa8ff"', "35": 'fill="#d670d6"', "36": 'fill="#4ec9d4"',
    "90": 'fill="#9a9a9a"',
}  # fmt: skip
"""By the codes of `why`."""
_CODE: Final = re.compile(r"\x1b\[([\d;]*)m")
_WIDE, _HIGH, _EDGE = 8.4, 18, 12


def output() -> str:
    """What the command writes to a terminal of 80 columns."""
    ours, its = pty.openpty()
    environ = {**os.environ, "COLUMNS": str(_COLUMNS), "TERM": "xterm-256color", "PYTHONIOENCODING": "utf-8"}
    environ.pop("NO_COLOR", None)
    words = [sys.executable, "-m", "otel_zernel", *_COMMAND.split()[1:]]
    with subprocess.Popen(  # noqa: S603  # this program
        words, stdin=its, stdout=its, stderr=subprocess.DEVNULL, env=environ
    ) as process:
        os.close(its)
        text = b"".join(_read(ours)).decode("utf-8")
    os.close(ours)
    if process.returncode:
        raise RuntimeError(f"{_COMMAND} has ended with status {process.returncode}")
    return text


def _read(descriptor: int) -> Iterator[bytes]:
    while True:
        try:
            data = os.read(descriptor, 65_536)
        except OSError:  # the other side is closed
            return
        if not data:
            return
        yield data


def cast(text: str) -> str:
    """The recording in version 2 of asciinema's format: the command is typed, and the output follows line by line."""
    lines = text.splitlines(keepends=True)
    header = {"version": 2, "width": _COLUMNS, "height": len(lines) + 2, "title": _COMMAND}
    events, at = [(0.0, _PROMPT)], 0.5
    for character in _COMMAND:
        events.append((at, character))
        at += _TYPED
    events.append((at, "\r\n"))
    at += _WAITED
    for line in lines:
        events.append((at, line))
        at += _PRINTED
    rows = [json.dumps(header), *(json.dumps([round(when, 2), "o", shown]) for when, shown in events)]
    return "\n".join(rows) + "\n"


def picture(recording: str) -> str:
    """The last screen of the recording as SVG."""
    header, *events = [json.loads(row) for row in recording.splitlines()]
    lines = "".join(shown for _, _, shown in events).replace("\r", "").rstrip("\n").split("\n")
    width, height = header["width"] * _WIDE + 2 * _EDGE, len(lines) * _HIGH + 2 * _EDGE
    rows = [row for number, line in enumerate(lines) for row in _row(number, line)]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height}" role="img" '
        'font-family="ui-monospace,Menlo,Consolas,DejaVu Sans Mono,monospace" font-size="14" fill="#d4d4d4">\n'
        f"<title>{escape(header['title'])}</title>\n"
        '<rect width="100%" height="100%" rx="6" fill="#1e1e1e"/>\n' + "\n".join(rows) + "\n</svg>\n"
    )


def _row(number: int, line: str) -> Iterator[str]:
    """The texts of a line, each in its style."""
    column, style = 0, ""
    pieces = _CODE.split(line)  # codes are the odd pieces
    for position, piece in enumerate(pieces):
        if position % 2:
            style = " ".join(_STYLES[code] for code in piece.split(";") if code not in ("", "0"))
            continue
        left = column + len(piece) - len(piece.lstrip())
        if text := piece.strip():
            place = f'x="{_EDGE + left * _WIDE:.1f}" y="{_EDGE + (number + 1) * _HIGH - 4}"'
            words = f'{place} textLength="{len(text) * _WIDE:.1f}" {style}'.rstrip()
            yield f'<text {words} xml:space="preserve">{escape(text)}</text>'
        column += len(piece)


if __name__ == "__main__":
    recorded = cast(output())
    CAST.write_text(recorded, "utf-8")
    PICTURE.write_text(picture(recorded), "utf-8")
