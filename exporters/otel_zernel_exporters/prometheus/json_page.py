"""The page as JSON, at `/json`, for programs that do not read Prometheus' text format."""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from typing import Any

Message = MutableMapping[str, Any]
App = Callable[[Message, Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]], Awaitable[None]]

PATH = "/json"
_CHUNK = 1 << 18
"""Bytes per write. A page of several megabytes, written at once, would block the event loop."""
_SAMPLE = re.compile(r"([^{ ]+)(?:\{(.*)\})? (\S+)(?: \S+)?")
"""Name, labels, value; a timestamp may follow."""
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')
_ESCAPED = re.compile(r"\\(.)")
_NOT_FINITE = frozenset({"NaN", "+Inf", "-Inf"})


def with_json(app: App, render: Callable[[], bytes]) -> App:
    """Serves the page that `render` returns at `/json` as JSON, and all other paths by `app`.

    `render` returns Prometheus' text format with classic names. It runs in a thread.
    """

    async def answer(scope: Message, receive: Callable[[], Awaitable[Message]], send: Callable[..., Any]) -> None:
        if scope["path"] != PATH or scope["method"] not in ("GET", "HEAD"):
            await app(scope, receive, send)
            return
        body = await asyncio.to_thread(lambda: page_json(render().decode()))
        length = (b"content-length", str(len(body)).encode())
        headers = [(b"content-type", b"application/json"), length]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        sent_length = 0 if scope["method"] == "HEAD" else len(body)
        for start in range(0, sent_length, _CHUNK):
            await send({"type": "http.response.body", "body": body[start : start + _CHUNK], "more_body": True})
        await send({"type": "http.response.body"})

    return answer


def page_json(text: str) -> bytes:
    """A page in Prometheus' text format as a JSON object: families by name, with type, help and samples.

    A sample has its own name (`_count`, `_sum` and `_bucket` differ from the family's), its labels and its value. NaN
    and the infinities are strings, because JSON has no such numbers.
    """
    return json.dumps(dict(_families(text)), ensure_ascii=False, separators=(",", ":")).encode()


def _families(text: str) -> Iterator[tuple[str, dict[str, Any]]]:
    family: dict[str, Any] = {}
    for line in text.split("\n"):
        if line.startswith("# HELP "):
            name, _, help_ = line.removeprefix("# HELP ").partition(" ")
            family = {"type": "", "help": _unescaped(help_), "samples": []}
            yield name, family
        elif line.startswith("# TYPE "):
            family["type"] = line.rpartition(" ")[2]
        elif found := _SAMPLE.fullmatch(line):
            labels = {name: _unescaped(value) for name, value in _LABEL.findall(found[2] or "")}
            family["samples"].append({"name": found[1], "labels": labels, "value": _number(found[3])})


def _unescaped(text: str) -> str:
    return _ESCAPED.sub(lambda found: "\n" if found[1] == "n" else found[1], text)


def _number(text: str) -> float | str:
    return text if text in _NOT_FINITE else float(text)
