"""Serves the files of the page, with a policy that forbids requests to any other place."""

import hashlib
from collections.abc import Iterator
from functools import partial
from importlib.resources import files
from typing import Any, Final

from otel_zernel_libraries.serving.api.answers import plain_answer
from otel_zernel_libraries.serving.api.routes import Route

_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_TYPES: Final = {"html": "text/html", "css": "text/css", "js": "text/javascript"}
_DOCUMENT: Final = "index.html"


def page_routes() -> Iterator[Route]:
    """The document at `/`, and its other files below `/live/`."""
    for file in sorted(files(__package__).iterdir(), key=lambda one: one.name):
        type_ = _TYPES.get(file.name.rpartition(".")[2])
        if type_ is None:
            continue
        answer = partial(_answer, file.read_bytes(), f"{type_}; charset=utf-8")
        if file.name == _DOCUMENT:
            yield Route("/", answer, summary="The live page.", content_type=type_)
        else:
            yield Route(f"/live/{file.name}", answer, content_type=type_, listed=False)


async def _answer(body: bytes, content_type: str, scope: Any, receive: Any, send: Any) -> None:
    """Answers with a file, or with 304 if the browser has it."""
    tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'.encode()
    headers = [
        (b"etag", tag),
        (b"cache-control", b"no-cache"),  # the browser asks each time whether the file has changed
        (b"content-security-policy", _POLICY.encode()),
        (b"x-content-type-options", b"nosniff"),
        (b"referrer-policy", b"no-referrer"),
    ]
    if tag in dict(scope["headers"]).get(b"if-none-match", b""):
        await send({"type": "http.response.start", "status": 304, "headers": headers})
        await send({"type": "http.response.body", "body": b""})
        return
    await plain_answer(send, body, content_type, headers=headers)
