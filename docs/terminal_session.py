"""Records `otel-zernel demo` in a terminal: docs/demo.cast for asciinema, and docs/demo.svg made from it. `make docs`
calls it."""

import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
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
_INK, _GROUND = "#d4d4d4", "#1e1e1e"
_COLOURS: Final = {
    "30": "#000000", "31": "#f14c4c", "32": "#5fd068", "33": "#e5c07b", "34": "#6fa8ff", "35": "#d670d6",
    "36": "#4ec9d4", "90": "#9a9a9a", "97": "#ffffff",
}  # fmt: skip
"""Of texts, by the SGR codes of `why` and `watch`."""
_STYLES: Final = {
    "1": 'font-weight="bold"', "2": 'opacity="0.7"', "7": f'fill="{_GROUND}"',
    **{code: f'fill="{colour}"' for code, colour in _COLOURS.items()},
}  # fmt: skip
_GROUNDS: Final = {"42": "#5fd068", "43": "#e5c07b", "44": "#2f6bd8", "45": "#a33ea3", "100": "#6a6a6a"}
"""Behind texts. White texts need darker ones."""
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
    return screen_picture(lines, header["width"], header["title"])


def screen_picture(lines: Sequence[str], columns: int, title: str) -> str:
    """Lines with SGR codes as SVG. Each text has the width of its cells, so that every font fits."""
    width, height = columns * _WIDE + 2 * _EDGE, len(lines) * _HIGH + 2 * _EDGE
    rows = [row for number, line in enumerate(lines) for row in _row(number, line)]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height}" role="img" '
        'font-family="ui-monospace,Menlo,Consolas,DejaVu Sans Mono,monospace" font-size="14" '
        f'fill="{_INK}">\n<title>{escape(title)}</title>\n'
        f'<rect width="100%" height="100%" rx="6" fill="{_GROUND}"/>\n' + "\n".join(rows) + "\n</svg>\n"
    )


def _row(number: int, line: str) -> Iterator[str]:
    """The texts of a line, each in its style and before its ground."""
    column, style, ground = 0, "", ""
    pieces = _CODE.split(line)  # codes are the odd pieces
    for position, piece in enumerate(pieces):
        if position % 2:
            codes = piece.split(";")
            ground = next((_GROUNDS[code] for code in codes if code in _GROUNDS), "")
            if "7" in codes:  # reverse
                ground, codes = next((_COLOURS[code] for code in codes if code in _COLOURS), _INK), ["7"]
            style = " ".join(_STYLES[code] for code in codes if code in _STYLES)
            continue
        if ground and piece:
            place = f'x="{_EDGE + column * _WIDE:.1f}" y="{_EDGE + number * _HIGH}"'
            yield f'<rect {place} width="{len(piece) * _WIDE:.1f}" height="{_HIGH}" fill="{ground}"/>'
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
