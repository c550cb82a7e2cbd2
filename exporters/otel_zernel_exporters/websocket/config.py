"""The configuration of the websocket exporter."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field, ValidationInfo, model_validator

from otel_zernel.authentication import AuthConfig
from otel_zernel.component import ComponentConfig
from otel_zernel.types import Address, ListenAddress, PositiveDuration
from otel_zernel_libraries.serving.environment import default_port, environment_of
from otel_zernel_libraries.serving.tls_config import ServerTlsConfig

_PORT = "ZERNEL_WS_PORT"
_INTERVAL = "ZERNEL_PUSH_INTERVAL_MS"
LOCAL_PAGES = (
    *("http://localhost", "http://localhost:*", "http://127.0.0.1", "http://127.0.0.1:*"),
    *("tauri://localhost", "http://tauri.localhost"),
)
"""The origins of pages that programs on this machine serve, and of the desktop applications made with Tauri."""


class WebSocketConfig(ComponentConfig):
    """The address of the feed, and how often it is pushed."""

    endpoint: ListenAddress = Address("localhost", 9092)
    """The address to listen on. The default port is `ZERNEL_WS_PORT`, if this environment variable is set."""
    push_interval: Annotated[PositiveDuration, Field(ge=0.1)] = 1.0
    """Seconds between two messages, at least 0.1. The default is `ZERNEL_PUSH_INTERVAL_MS`, if it is set."""
    max_clients: Annotated[int, Field(gt=0, le=10_000)] = 1000
    """The most readers. Others get 503."""
    allowed_origins: tuple[str, ...] = LOCAL_PAGES
    """Web pages that may read the feed, with `*` for any characters. Programs that are no browsers always may."""
    expiration: PositiveDuration = 300.0
    """Seconds without data after which the memory of a process leaves the feed."""
    tls: ServerTlsConfig | None = None
    """TLS of the server. null serves `ws://`."""
    auth: AuthConfig | None = None
    """The extension that checks requests. null lets everybody read the feed."""

    @model_validator(mode="before")
    @classmethod
    def _from_environment(cls, fields: Any, info: ValidationInfo) -> Any:
        """Environment variables are defaults: the configuration wins."""
        fields = default_port(fields, info, _PORT, cls.model_fields["endpoint"].default)
        text = environment_of(info).get(_INTERVAL)
        if not text or not isinstance(fields, Mapping) or "push_interval" in fields:
            return fields
        if not text.strip().isdecimal():
            raise ValueError(f"{_INTERVAL}: {text[:20]!r} is not a number of milliseconds; set it to 1000 for 1 s")
        return {**fields, "push_interval": f"{text.strip()}ms"}
