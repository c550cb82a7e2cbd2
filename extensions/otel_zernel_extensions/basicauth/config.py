"""The configuration of the basicauth extension, with the names of the OpenTelemetry Collector."""

from typing import Annotated, Self

from pydantic import model_validator

from otel_zernel.component import ComponentConfig
from otel_zernel.types import ReadableFile, Secret, Section
from otel_zernel_libraries.extras import missing_packages


class HtpasswdConfig(Section):
    """The users of a server, as lines `user:hash` of Apache's htpasswd."""

    file: Annotated[str | None, ReadableFile()] = None
    """A file of such lines. It is read again when it changes."""
    inline: Secret | None = None
    """Such lines. They win over lines of the file for the same user."""

    @model_validator(mode="after")
    def _has_users(self) -> Self:
        if not self.file and not self.inline:
            raise ValueError("no users are configured: set file or inline")
        if sentence := missing_packages("the check of passwords", "passlib", "bcrypt"):
            raise ValueError(sentence)
        return self


class ClientAuthConfig(Section):
    """The user name and the password that a client sends."""

    username: str = ""
    """The user name, without a colon."""
    username_file: Annotated[str | None, ReadableFile()] = None
    """A file with the user name. It replaces `username`, and is read again when it changes."""
    password: Secret | None = None
    """The password. Better kept out of the file: `${env:NAME}` or `password_file`."""
    password_file: Annotated[str | None, ReadableFile()] = None
    """A file with the password. It replaces `password`, and is read again when it changes."""

    @model_validator(mode="after")
    def _is_complete(self) -> Self:
        if ":" in self.username:
            raise ValueError("a user name must not contain a colon (RFC 7617)")
        if not self.username and not self.username_file:
            raise ValueError("no user name is configured: set username or username_file")
        if not self.password and not self.password_file:
            raise ValueError("no password is configured: set password or password_file")
        return self


class BasicAuthConfig(ComponentConfig):
    """Either the users of a server (`htpasswd`), or the credentials of a client (`client_auth`)."""

    htpasswd: HtpasswdConfig | None = None
    """The users that a server accepts."""
    client_auth: ClientAuthConfig | None = None
    """The credentials that a client sends."""

    @model_validator(mode="after")
    def _is_server_or_client(self) -> Self:
        if (self.htpasswd is None) == (self.client_auth is None):
            raise ValueError("set either htpasswd (for servers) or client_auth (for exporters)")
        return self
