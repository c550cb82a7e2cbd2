"""The options of requests: credentials, TLS, proxy, redirects. Keys and defaults are those of Prometheus."""

from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from otel_zernel.text import shown_url
from otel_zernel.types import Secret, Section


class ScrapeBasicAuthConfig(Section):
    """User and password of HTTP basic authentication."""

    username: str = ""
    """The user."""
    username_file: str | None = None
    """A file with the user, read at each scrape."""
    password: Secret | None = None
    """The password. Never printed."""
    password_file: str | None = None
    """A file with the password, read at each scrape."""

    @model_validator(mode="after")
    def _exclusive(self) -> Self:
        if self.password is not None and self.password_file is not None:
            raise ValueError("password and password_file exclude each other: remove one")
        if self.username and self.username_file is not None:
            raise ValueError("username and username_file exclude each other: remove one")
        return self


class ScrapeAuthorizationConfig(Section):
    """The Authorization header."""

    type: str = "Bearer"
    """The scheme."""
    credentials: Secret | None = None
    """The text after the scheme, such as a token. Never printed."""
    credentials_file: str | None = None
    """A file with this text, read at each scrape."""

    @model_validator(mode="after")
    def _usable(self) -> Self:
        if self.credentials is not None and self.credentials_file is not None:
            raise ValueError("credentials and credentials_file exclude each other: remove one")
        if self.type.strip().lower() == "basic":
            raise ValueError("type Basic is not possible here: use basic_auth")
        return self


class ScrapeTlsConfig(Section):
    """TLS to the target."""

    ca: str | None = None
    """Certificates of the authorities that may sign the target's certificate, as PEM text."""
    ca_file: str | None = None
    """The same as a file. By default those of the system."""
    cert: str | None = None
    """The client's certificate, as PEM text."""
    cert_file: str | None = None
    """The same as a file."""
    key: Secret | None = None
    """The client's private key, as PEM text. Never printed."""
    key_file: str | None = None
    """The same as a file."""
    server_name: str = ""
    """The name in the target's certificate, if it differs from the host."""
    insecure_skip_verify: bool = False
    """Accept any certificate."""
    min_version: Literal["TLS12", "TLS13"] = "TLS12"
    """The oldest version of TLS."""
    max_version: Literal["TLS12", "TLS13"] | None = None
    """The newest version of TLS."""

    @model_validator(mode="after")
    def _keys_agree(self) -> Self:
        for name in ("ca", "cert", "key"):
            if getattr(self, name) is not None and getattr(self, f"{name}_file") is not None:
                raise ValueError(f"{name} and {name}_file exclude each other: remove one")
        if bool(self.cert or self.cert_file) != bool(self.key or self.key_file):
            raise ValueError("cert_file and key_file belong together: set both or neither (or cert and key)")
        return self

    @property
    def files(self) -> tuple[str, ...]:
        """The files in use."""
        return tuple(filter(None, (self.ca_file, self.cert_file, self.key_file)))


class ScrapeHttpConfig(Section):
    """The options of a job's requests."""

    basic_auth: ScrapeBasicAuthConfig | None = None
    """HTTP basic authentication."""
    authorization: ScrapeAuthorizationConfig | None = None
    """The Authorization header."""
    bearer_token: Secret | None = None
    """The older form of `authorization::credentials`."""
    bearer_token_file: str | None = None
    """The older form of `authorization::credentials_file`."""
    tls_config: ScrapeTlsConfig = ScrapeTlsConfig.model_construct()
    """TLS, for `scheme: https`."""
    follow_redirects: bool = True
    """Follow up to 10 redirects. Credentials are not sent to another host."""
    enable_http2: bool = True
    """Accepted for compatibility. Requests use HTTP/1.1."""
    proxy_url: str | None = None
    """The proxy of the requests: `http://proxy:3128`."""
    proxy_from_environment: bool = False
    """Use the proxies in HTTP_PROXY, HTTPS_PROXY and NO_PROXY."""
    http_headers: Annotated[dict[str, list[Secret]], Field(max_length=100)] = Field(default_factory=dict)
    """Headers of each request, with a list of values each. Never printed."""

    @field_validator("http_headers", mode="before")
    @classmethod
    def _values(cls, headers: object) -> object:
        """Prometheus has `{values: [...], secrets: [...]}`."""
        if not isinstance(headers, dict):
            return headers
        return {
            name: [*header.get("values", []), *header.get("secrets", [])]
            if isinstance(header, dict)
            else [header]
            if isinstance(header, str)
            else header
            for name, header in headers.items()
        }

    @field_validator("proxy_url")
    @classmethod
    def _proxy_is_a_url(cls, url: str | None) -> str | None:
        if url and (urlsplit(url).scheme not in {"http", "https"} or not urlsplit(url).hostname):
            raise ValueError(f"{shown_url(url)!r} is not the URL of a proxy; write http://host:3128")
        return url

    @model_validator(mode="after")
    def _one_kind_of_credentials(self) -> Self:
        given = [
            name
            for name in ("basic_auth", "authorization", "bearer_token", "bearer_token_file")
            if getattr(self, name) is not None
        ]
        if len(given) > 1:
            raise ValueError(f"{' and '.join(given)} exclude each other: keep one")
        return self
