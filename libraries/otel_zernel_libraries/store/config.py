"""The configuration of a store, for exporters that write and for services that read."""

from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from otel_zernel.types import PositiveDuration, ReadableFile, Secret, Section
from otel_zernel_libraries.extras import missing_packages
from otel_zernel_libraries.store.address import DatabaseAddress, PostgresAddress, parse_url


class DatabaseTlsConfig(Section):
    """TLS of connections to PostgreSQL. The modes are those of libpq."""

    mode: Literal["disable", "prefer", "require", "verify-ca", "verify-full"] = "prefer"
    """Only `verify-full` protects from other servers under the same address. `prefer` uses TLS if the server has it."""
    ca_file: Annotated[str | None, ReadableFile()] = None
    """PEM file of the authorities that may sign the server's certificate. By default those of the system."""
    cert_file: Annotated[str | None, ReadableFile()] = None
    """PEM file of the client's certificate."""
    key_file: Annotated[str | None, ReadableFile()] = None
    """PEM file of the client's private key."""

    @model_validator(mode="after")
    def _keys_agree(self) -> Self:
        if (self.cert_file is None) != (self.key_file is None):
            raise ValueError("cert_file and key_file belong together: set both or neither")
        if self.cert_file and self.mode in ("disable", "prefer"):
            raise ValueError(f"cert_file needs TLS: set mode to verify-full in place of {self.mode}")
        if self.ca_file and not self.mode.startswith("verify-"):
            raise ValueError(f"ca_file is not used with mode {self.mode}: set mode to verify-full")
        return self


class StoreConfig(Section):
    """The database and the ways to it."""

    url: str = Field("", validate_default=True)
    """`sqlite:///path` or `postgresql://user@host:port/database`. Without a password."""
    password: Secret | None = None
    """The password for PostgreSQL. Never printed."""
    password_file: Annotated[str | None, ReadableFile()] = None
    """A file with the password, read at every connection."""
    tls: DatabaseTlsConfig = DatabaseTlsConfig.model_construct()
    """TLS, for PostgreSQL."""
    schema_name: Annotated[str, Field(pattern=r"^[a-z_][a-z0-9_]{0,62}$")] = "otel_zernel"
    """The schema of the tables, for PostgreSQL. Created if it is missing."""
    pool_size: Annotated[int, Field(ge=1, le=100)] = 4
    """Connections to PostgreSQL at most."""
    connect_timeout: PositiveDuration = 5.0
    """Seconds to wait for a connection."""

    @field_validator("url")
    @classmethod
    def _url_is_a_database(cls, url: str) -> str:
        if isinstance(parse_url(url), PostgresAddress) and (sentence := missing_packages("PostgreSQL", "asyncpg")):
            raise ValueError(sentence)
        return url

    @model_validator(mode="after")
    def _one_password(self) -> Self:
        if self.password is not None and self.password_file is not None:
            raise ValueError("password and password_file exclude each other: set one of them")
        return self

    @property
    def address(self) -> DatabaseAddress:
        """The parts of the URL."""
        return parse_url(self.url)

    @property
    def sends_passwords_openly(self) -> bool:
        """Whether another machine could read the password, or take the server's place."""
        address = self.address
        if not isinstance(address, PostgresAddress) or not address.is_remote:
            return False
        return not self.tls.mode.startswith("verify-")


class WritableStoreConfig(StoreConfig):
    """The same for programs that write."""

    synchronous: Literal["full", "normal"] = "full"
    """Whether a stored batch survives a power failure (`full`) or only a crash of the process (`normal`)."""
