"""The settings of the gateway: made in memory for a store, or read from files."""

import json
from collections.abc import Mapping, Sequence

from otel_zernel.config.schema import Settings, read_settings
from otel_zernel.errors import CannotStart
from otel_zernel.registry import Registry
from otel_zernel.types import Address

_PASSWORD = "PGPASSWORD"  # noqa: S105  # the variable of libpq


def store_settings(url: str, endpoint: str, environ: Mapping[str, str], installed: Registry) -> Settings:
    """The settings of a gateway to one store. The password for PostgreSQL is in `PGPASSWORD`, if it needs one.

    Raises `ConfigError`.
    """
    query = {"url": _literal(url)}
    if url.startswith("postgres") and (password := environ.get(_PASSWORD)):
        query["password"] = _literal(password)
    tree = {
        "extensions": {"api": {"endpoint": _literal(endpoint)}, "query": query},
        "service": {
            "extensions": ["api", "query"],
            "telemetry": {"metrics": {"level": "none"}, "logs": {"level": "warn"}},
        },
    }
    return read_settings([f"yaml:{json.dumps(tree)}"], [], environ, installed)


def file_settings(uris: Sequence[str], environ: Mapping[str, str], installed: Registry) -> Settings:
    """The settings of configuration files. Raises `ConfigError`, or `CannotStart` if they serve no store."""
    settings = read_settings(uris, [], environ, installed)
    if not _queries(settings):
        raise CannotStart(
            "the configuration serves no store: add the extensions api and query to service::extensions, "
            "or use --store URL"
        )
    return settings


def bases(settings: Settings) -> list[str]:
    """The URLs before the paths of the routes, one for each server."""
    apis = dict.fromkeys(settings.extensions[id_].config.model_dump()["api"] for id_ in _queries(settings))
    return [_base(settings, id_) for id_ in apis]


def _queries(settings: Settings) -> list[str]:
    return [id_ for id_ in settings.extensions_enabled if settings.extensions[id_].type == "query"]


def _base(settings: Settings, api: str) -> str:
    config = settings.extensions[api].config
    endpoint: Address = getattr(config, "endpoint")  # noqa: B009  # the class belongs to another component
    host = "localhost" if endpoint.host in ("", "0.0.0.0", "::") else endpoint.host  # noqa: S104
    return f"{'https' if getattr(config, 'tls', None) else 'http'}://{Address(host, endpoint.port)}"


def _literal(text: str) -> str:
    """The text, without any variable to expand."""
    return text.replace("$", "$$")
