"""The description of all routes as OpenAPI 3.1: https://spec.openapis.org/oas/v3.1.0"""

import re
from collections.abc import Iterable, Mapping
from html import escape
from typing import Any

from otel_zernel import __version__
from otel_zernel_libraries.serving.api.routes import Parameter, Route
from otel_zernel_libraries.serving.api.table import path_parameters

_ERROR = {
    "description": "The request was refused, or failed.",
    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
}
_PROBLEM = {
    "description": "The request was refused, or failed.",
    "content": {
        "application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}},
        "application/json": {"schema": {"$ref": "#/components/schemas/Error"}},
    },
}
"""Errors of the server, such as a missing token, are not problems."""
_SCHEMAS = {
    "Problem": {
        "type": "object",
        "description": "An error by RFC 9457.",
        "properties": {
            "type": {"type": "string"},
            "title": {"type": "string"},
            "status": {"type": "integer"},
            "detail": {"type": "string", "description": "One sentence."},
        },
        "required": ["title", "status", "detail"],
    },
    "Error": {
        "type": "object",
        "properties": {"error": {"type": "string", "description": "One sentence."}},
        "required": ["error"],
    },
}


def openapi(routes: Iterable[Route], challenge: str | None) -> dict[str, Any]:
    """The description as a value for JSON. `challenge` is that of the authenticator, None without one."""
    paths: dict[str, dict[str, Any]] = {}
    for route in sorted(routes, key=lambda route: (route.path, route.kind)):
        if route.listed:
            operations = paths.setdefault(route.path.replace(":path}", "}"), {})
            for method in route.methods if route.kind == "http" else ("GET",):
                operations.setdefault(method.lower(), _operation(route, method))
    schemes = _security(challenge)
    return {
        "openapi": "3.1.0",
        "info": {"title": "otel-zernel", "version": __version__, "description": "What this collector serves."},
        "servers": [{"url": "./"}],
        "paths": paths,
        "components": {"schemas": _SCHEMAS, **({"securitySchemes": schemes} if schemes else {})},
        **({"security": [{name: []} for name in schemes]} if schemes else {}),
    }


def _operation(route: Route, method: str) -> dict[str, Any]:
    success: dict[str, Any] = {"description": "The answer."}
    schema = {"schema": route.answer} if route.answer is not None else {}
    success["content"] = {route.content_type.partition(";")[0]: schema} | {
        other_kind: {} for other_kind in route.other_types
    }
    is_http = route.kind == "http"
    operation: dict[str, Any] = {
        "operationId": re.sub(r"[^a-z0-9]+", "_", f"{method}{route.path}".lower()).strip("_"),
        "responses": {"200": success, "default": _PROBLEM if route.has_problems else _ERROR}
        if is_http
        else {"101": {"description": "A WebSocket opens."}},
    }
    if route.summary:
        operation["summary"] = route.summary
    if parameters := _parameters(route):
        operation["parameters"] = parameters
    if route.body is not None and method in ("POST", "PUT", "PATCH"):
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": route.body}}}
    return operation


def _parameters(route: Route) -> list[dict[str, Any]]:
    described = {(parameter.place, parameter.name) for parameter in route.parameters}
    others = [
        Parameter(name, "path", "", {"type": "string"})
        for name in path_parameters(route.path)
        if ("path", name) not in described
    ]
    return [_parameter(parameter) for parameter in (*route.parameters, *others)]


def _parameter(parameter: Parameter) -> dict[str, Any]:
    described: dict[str, Any] = {"name": parameter.name, "in": parameter.place, "schema": parameter.schema}
    if parameter.description:
        described["description"] = parameter.description
    if parameter.style:
        described |= {"style": parameter.style, "explode": True}
    return {**described, "required": True} if parameter.place == "path" else described


def _security(challenge: str | None) -> Mapping[str, Any]:
    if challenge is None:
        return {}
    scheme = challenge.partition(" ")[0].lower() or "bearer"
    return {scheme: {"type": "http", "scheme": scheme}}


def page(routes: Iterable[Route]) -> bytes:
    """The same for people: a table in HTML, without scripts and styles."""
    rows = "\n".join(
        f"<tr><td>{'WebSocket' if entry.kind == 'websocket' else ', '.join(entry.methods)}</td><td>{_path(entry)}</td>"
        f"<td>{escape(entry.summary)}</td></tr>"
        for entry in sorted(routes, key=lambda route: (route.path, route.kind))
        if entry.listed
    )
    head = "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>"
    text = f"""{head}<title>otel-zernel: API</title>
<h1>API</h1>
<p>For programs: <a href="openapi.json">openapi.json</a> (OpenAPI 3.1).</p>
<table><thead><tr><th>Method<th>Path<th>Description</thead><tbody>
{rows}
</tbody></table>
"""
    return text.encode()


def _path(route: Route) -> str:
    path = escape(route.path.replace(":path}", "}"))
    is_link = route.kind == "http" and "GET" in route.methods and "{" not in path
    return f'<a href=".{path}">{path}</a>' if is_link else path
