"""The configuration of the zernel receiver."""

from typing import Annotated, Self
from urllib.parse import SplitResult, urlsplit

from pydantic import Field, field_validator, model_validator

from otel_zernel.authentication import AuthConfig
from otel_zernel.component import ComponentConfig
from otel_zernel.text import shown_url
from otel_zernel.types import PositiveDuration, SecretHeaders
from otel_zernel_libraries.clients.addresses import is_loopback
from otel_zernel_libraries.clients.tls_config import TlsConfig


class ZernelConfig(ComponentConfig):
    """The feed to read."""

    endpoint: str = "ws://localhost:9092"
    """The feed: `ws://host:9092`, or `wss://host:9092` with TLS."""
    headers: SecretHeaders = Field(default_factory=dict)
    """Headers of the request. Values are never printed."""
    auth: AuthConfig | None = None
    """The extension that adds credentials to the request."""
    tls: TlsConfig = TlsConfig.model_construct()
    """TLS, for `wss://`."""
    initial_interval: PositiveDuration = 1.0
    """Seconds before the first attempt to connect again. They double with each failure."""
    max_interval: PositiveDuration = 30.0
    """The most seconds between two attempts. A good message sets the time back to `initial_interval`."""
    max_message_size: Annotated[int, Field(ge=1024, le=64 << 20)] = 1 << 20
    """The most bytes of a message. A longer one ends the connection."""

    @field_validator("endpoint")
    @classmethod
    def _endpoint_is_a_url(cls, endpoint: str) -> str:
        try:
            url = urlsplit(endpoint)
            is_usable = url.scheme in ("ws", "wss") and bool(url.hostname) and url.port != 0 and not url.fragment
        except ValueError:
            is_usable = False
        if not is_usable or not endpoint.isascii() or any(character <= " " for character in endpoint):
            raise ValueError(f"{shown_url(endpoint)!r} is not the URL of a feed; write ws://host:9092")
        if url.username or url.password:
            raise ValueError("the URL must not have a user or a password; set auth::authenticator: basicauth")
        return endpoint

    @model_validator(mode="after")
    def _intervals_are_in_order(self) -> Self:
        if self.max_interval < self.initial_interval:
            raise ValueError("max_interval must not be shorter than initial_interval")
        return self

    @property
    def url(self) -> SplitResult:
        """The parts of the endpoint."""
        return urlsplit(self.endpoint)

    @property
    def host(self) -> str:
        """The host of the feed, as the URL has it."""
        return self.url.hostname or ""

    @property
    def port(self) -> int:
        """The port of the feed."""
        return self.url.port or (443 if self.url.scheme == "wss" else 80)

    @property
    def is_unprotected(self) -> bool:
        """Whether others on the network can read the request."""
        return self.url.scheme == "ws" and not is_loopback(self.host)
