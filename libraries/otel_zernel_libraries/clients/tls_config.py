"""The `tls` block of exporters. Keys and defaults are those of the OpenTelemetry Collector."""

from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, field_validator, model_validator

from otel_zernel.component import ComponentConfig
from otel_zernel.types import Duration, ReadableFile, Secret

TlsVersion = Literal["1.2", "1.3"]
_PAIRS = (("ca_file", "ca_pem"), ("cert_file", "cert_pem"), ("key_file", "key_pem"))


def _as_text(value: object) -> object:
    """YAML reads an unquoted 1.2 as a number."""
    return str(value) if isinstance(value, float) else value


class TlsConfig(ComponentConfig):
    """TLS of the connection."""

    insecure: bool = False
    """Use plaintext. For gRPC only: for HTTP the scheme of the endpoint decides."""
    insecure_skip_verify: bool = False
    """Accept any server certificate. For HTTP only."""
    ca_file: Annotated[str | None, ReadableFile()] = None
    """PEM file of the authorities that may sign the server's certificate. By default those of the system."""
    ca_pem: str | None = None
    """The content of such a file, in place of `ca_file`."""
    include_system_ca_certs_pool: bool = False
    """Trust the authorities of the system besides those of `ca_file` or `ca_pem`."""
    cert_file: Annotated[str | None, ReadableFile()] = None
    """PEM file of the client's certificate, for mutual TLS."""
    cert_pem: str | None = None
    """The content of such a file, in place of `cert_file`."""
    key_file: Annotated[str | None, ReadableFile()] = None
    """PEM file of the client's private key."""
    key_pem: Secret | None = None
    """The content of such a file, in place of `key_file`. Never printed."""
    min_version: Annotated[TlsVersion, BeforeValidator(_as_text)] = "1.2"
    """The oldest TLS version to use."""
    max_version: Annotated[TlsVersion | Literal[""], BeforeValidator(_as_text)] = ""
    """The newest TLS version to use; empty for no limit."""
    server_name_override: str | None = None
    """The name in the server's certificate, if it differs from the host of the endpoint."""
    reload_interval: Duration = 0.0
    """Seconds between checks of the files for changes; 0 for never."""

    @field_validator("min_version", "max_version", mode="before")
    @classmethod
    def _version_is_safe(cls, version: object) -> object:
        if str(version) in {"1.0", "1.1"}:
            raise ValueError(f"TLS {version} is not secure and not supported; use 1.2 or 1.3")
        return version

    @model_validator(mode="after")
    def _keys_agree(self) -> Self:
        for file, pem in _PAIRS:
            if getattr(self, file) is not None and getattr(self, pem) is not None:
                raise ValueError(f"{file} and {pem} exclude each other: set one of them")
        if self.has_certificate != (self.key_file is not None or self.key_pem is not None):
            raise ValueError("cert_file and key_file belong together: set both or neither (or cert_pem and key_pem)")
        if self.max_version and self.max_version < self.min_version:
            raise ValueError(f"max_version {self.max_version} is older than min_version {self.min_version}")
        return self

    @property
    def has_certificate(self) -> bool:
        """Whether the client has a certificate."""
        return self.cert_file is not None or self.cert_pem is not None
