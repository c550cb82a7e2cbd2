"""The files of Swagger UI, from the package swagger-ui-bundle-v2."""

import hashlib
from collections.abc import Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from otel_zernel_libraries.extras import missing_packages
from otel_zernel_libraries.serving.api.answers import ApiError, cached_answer
from otel_zernel_libraries.serving.api.routes import Route

_POLICY: Final = (
    b"default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; connect-src 'self'; "
    b"img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Swagger UI sets styles in its elements."""
_TYPES: Final = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".png": "image/png"}
_FILES: Final = ("index.css", "swagger-ui.css", "swagger-ui-bundle.js", "swagger-ui-standalone-preset.js")
_ICONS: Final = ("favicon-16x16.png", "favicon-32x32.png")
_START: Final = b"""window.onload = function () {
  window.ui = SwaggerUIBundle({
    url: "../openapi.json",
    dom_id: "#swagger-ui",
    deepLinking: true,
    validatorUrl: null,
    presets: [SwaggerUIBundle.presets.apis, SwaggerUIStandalonePreset],
    layout: "StandaloneLayout",
  });
};
"""
"""Without a validator: its default sends the description to a public server."""
_DOCUMENT: Final = b"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>otel-zernel: API</title>
<link rel="stylesheet" href="swagger-ui.css">
<link rel="stylesheet" href="index.css">
<link rel="icon" href="favicon-32x32.png">
</head>
<body>
<div id="swagger-ui"></div>
<script src="swagger-ui-bundle.js"></script>
<script src="swagger-ui-standalone-preset.js"></script>
<script src="swagger-initializer.js"></script>
</body>
</html>
"""


def swagger_routes() -> Iterator[Route]:
    """The page at `/swagger/index.html` and its files. Without the package, the page is 404 with a sentence."""
    folder = _folder()
    if folder is None:
        yield Route("/swagger/index.html", _missing, summary="Swagger UI.", content_type="text/html")
        return
    yield _route("index.html", _DOCUMENT, listed=True)
    yield _route("swagger-initializer.js", _START)
    for name in (*_FILES, *_ICONS):
        yield _route(name, (folder / name).read_bytes())


def _folder() -> Path | None:
    """The newest version in the package."""
    spec = find_spec("swagger_ui_bundle")
    if spec is None or spec.origin is None:
        return None
    folders = sorted((Path(spec.origin).parent / "vendor").glob("swagger-ui-5*"))
    return folders[-1] if folders else None


def _route(name: str, body: bytes, *, listed: bool = False) -> Route:
    kind = _TYPES[Path(name).suffix]
    tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'.encode()
    return Route(
        f"/swagger/{name}",
        partial(_answer, body, kind, tag),
        summary="Swagger UI." if listed else "",
        content_type=kind,
        listed=listed,
    )


async def _answer(body: bytes, kind: str, tag: bytes, scope: Any, receive: Any, send: Any) -> None:
    text = "" if kind == "image/png" else "; charset=utf-8"
    await cached_answer(scope, send, body, f"{kind}{text}", tag, [(b"content-security-policy", _POLICY)])


async def _missing(scope: Any, receive: Any, send: Any) -> None:
    raise ApiError(404, f"{missing_packages('this page', 'swagger_ui_bundle')}; /docs lists the routes")
