"""Serves the files of the page, with a policy that forbids requests to any other place.

The words and the colours are those of every view: `table.js` and `phases.css` are made of the common table.
"""

import hashlib
import json
from collections.abc import Iterator
from functools import partial
from importlib.resources import files
from typing import Any, Final

from otel_zernel_libraries.serving.api.answers import cached_answer
from otel_zernel_libraries.serving.api.routes import Route
from otel_zernel_libraries.training.ledger import phase_at
from otel_zernel_libraries.training.words import (
    ACTIVITY_WORDS,
    DELAYS,
    PHASE_WORDS,
    POSITION_WORDS,
    THROTTLE_NAMES,
    VERDICT_WORDS,
    phases_css,
)

_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_TYPES: Final = {"html": "text/html", "css": "text/css", "js": "text/javascript"}
DOCUMENT: Final = "index.html"


def page_texts() -> dict[str, bytes]:
    """The files by name."""
    texts = {file.name: file.read_bytes() for file in files(__package__).iterdir() if file.name.endswith((*_TYPES,))}
    return texts | {"table.js": _table().encode(), "phases.css": phases_css().encode()}


def page_routes() -> Iterator[Route]:
    """The document at `/`, and its other files below `/live/`."""
    for name, text in sorted(page_texts().items()):
        type_ = _TYPES[name.rpartition(".")[2]]
        answer = partial(_answer, text, f"{type_}; charset=utf-8")
        if name == DOCUMENT:
            yield Route("/", answer, summary="The live page.", content_type=type_)
        else:
            yield Route(f"/live/{name}", answer, content_type=type_, listed=False)


def _table() -> str:
    """The words as a JavaScript module."""
    verdicts = {
        name: {"name": words.name, "sentence": words.sentence, "advice": "".join(words.advice[:1]).replace("`", "")}
        for name, words in VERDICT_WORDS.items()
    }
    constants = {
        "PHASES": [*PHASE_WORDS],
        "NAMES": [words.name for words in PHASE_WORDS.values()],
        "LETTERS": [words.letter for words in PHASE_WORDS.values()],
        "VERDICTS": verdicts,
        "DELAYS": DELAYS,
        "THROTTLE_NAMES": THROTTLE_NAMES,
        "POSITIONS": {at: {"name": words.name, "phase": phase_at(at)} for at, words in POSITION_WORDS.items()},
        "ACTIVITIES": ACTIVITY_WORDS,
    }
    return "".join(f"export const {name} = {json.dumps(value)};\n" for name, value in constants.items())


async def _answer(body: bytes, content_type: str, scope: Any, receive: Any, send: Any) -> None:
    """Answers with a file, or with 304 if the browser has it."""
    tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'.encode()
    headers = [
        (b"content-security-policy", _POLICY.encode()),
        (b"x-content-type-options", b"nosniff"),
        (b"referrer-policy", b"no-referrer"),
    ]
    await cached_answer(scope, send, body, content_type, tag, headers)
