"""The options that every Kafka client has. Names and defaults are those of the OpenTelemetry Collector."""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BeforeValidator, Field, field_validator, model_validator

from otel_zernel.authentication import Authenticator
from otel_zernel.component import ComponentConfig
from otel_zernel.types import Duration, ExtensionId, PositiveDuration, Secret, Section
from otel_zernel_libraries.clients.tls_config import TlsConfig

Mechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
_AWS = "AWS_MSK_IAM_OAUTHBEARER"


class SaslConfig(Section):
    """SASL. PLAIN and SCRAM need `username` and `password`, OAUTHBEARER needs `oauthbearer_token_source`."""

    mechanism: Mechanism
    username: str = ""
    password: Secret = Secret("")
    version: Literal[0, 1] = 1
    """No effect: the client and the broker agree on the version."""
    oauthbearer_token_source: Annotated[str | None, ExtensionId(Authenticator)] = None
    """The id of an extension that has tokens, such as `bearertokenauth`."""

    @field_validator("mechanism", mode="before")
    @classmethod
    def _is_possible(cls, mechanism: object) -> object:
        if mechanism == _AWS:
            raise ValueError(
                f"{_AWS} needs the signatures of AWS, which this client does not make; use SCRAM-SHA-512, or"
                " OAUTHBEARER with an extension that has the tokens"
            )
        return mechanism

    @model_validator(mode="after")
    def _has_credentials(self) -> Self:
        if self.mechanism == "OAUTHBEARER":
            if self.oauthbearer_token_source is None:
                raise ValueError(
                    "OAUTHBEARER needs oauthbearer_token_source: the id of an extension that has tokens, such as"
                    " bearertokenauth"
                )
        elif not self.username or not self.password.get_secret_value():
            raise ValueError(f"{self.mechanism} needs username and password")
        return self


class KafkaAuthConfig(Section):
    """The credentials of the client."""

    sasl: SaslConfig | None = None
    kerberos: dict[str, Any] | None = Field(default=None, exclude=True)
    """Not supported."""

    @field_validator("kerberos", mode="before")
    @classmethod
    def _is_impossible(cls, kerberos: object) -> None:
        if kerberos is not None:
            raise ValueError(
                "the Kafka client of this Python package has no Kerberos; use sasl with SCRAM-SHA-512 or PLAIN over TLS"
            )


Encoding = Literal["otlp_proto", "otlp_json"]
_BROKER: Final = re.compile(r"(\[[0-9A-Fa-f:.%\w]+\]|[^:/@,\s\[\]]+)(:\d{1,5})?")
_TOPIC: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")
"""Kafka's names of topics."""


def check_topic(name: str) -> str:
    """The name. Raises `ValueError` if no topic can have it."""
    if not _TOPIC.fullmatch(name) or name in (".", ".."):
        raise ValueError(f"{name!r} is not a topic; use letters, digits, dots, underscores and hyphens, at most 249")
    return name


def _brokers(value: object) -> object:
    """A list; one text may have several brokers, separated by commas."""
    return [part.strip() for part in value.split(",")] if isinstance(value, str) else value


class MetadataRetryConfig(Section):
    """Repetitions of requests to brokers."""

    backoff: PositiveDuration = 0.25
    """Seconds before a repetition."""


class MetadataConfig(Section):
    """How the client learns of brokers, topics and partitions."""

    refresh_interval: Annotated[PositiveDuration, Field(le=3600)] = 600.0
    """Seconds between two requests for metadata."""
    retry: MetadataRetryConfig = MetadataRetryConfig.model_construct()


class KafkaClientConfig(ComponentConfig):
    """The connection to the brokers."""

    brokers: Annotated[list[str], BeforeValidator(_brokers), Field(min_length=1)] = Field(["localhost:9092"])
    """Addresses of brokers, `host:port`. A few are enough: they name the others."""
    resolve_canonical_bootstrap_servers_only: bool = False
    """Whether to replace each broker by the canonical names of its addresses, as Kerberos and some clouds need."""
    client_id: str = "otel-collector"
    """The name of the client in the logs and quotas of brokers."""
    rack_id: str = ""
    """The rack or zone of the client: it reads from the closest replica."""
    conn_idle_timeout: Duration = 540.0
    """Seconds after which an idle connection is closed."""
    tls: TlsConfig | None = None
    """TLS of the connection. Plaintext without it."""
    auth: KafkaAuthConfig | None = None
    metadata: MetadataConfig = MetadataConfig.model_construct()

    @model_validator(mode="before")
    @classmethod
    def _former_names(cls, fields: Any) -> Any:
        """`auth::tls` and `auth::plain_text` are former names."""
        if not isinstance(fields, Mapping) or not isinstance(fields.get("auth"), Mapping):
            return fields
        fields, auth = dict(fields), dict(fields["auth"])
        if (tls := auth.pop("tls", None)) is not None:
            if fields.get("tls") is not None:
                raise ValueError("auth::tls is the former name of tls: remove one of them")
            fields["tls"] = tls
        if (plain := auth.pop("plain_text", None)) is not None:
            if auth.get("sasl") is not None:
                raise ValueError("auth::plain_text is the former name of auth::sasl: remove one of them")
            auth["sasl"] = {**plain, "mechanism": "PLAIN"} if isinstance(plain, Mapping) else plain
        return {**fields, "auth": auth}

    @field_validator("brokers")
    @classmethod
    def _brokers_are_addresses(cls, brokers: list[str]) -> list[str]:
        for broker in brokers:
            if not _BROKER.fullmatch(broker):
                raise ValueError(f"{broker!r} is not a broker; write host:9092")
        return brokers

    @field_validator("tls")
    @classmethod
    def _tls_is_possible(cls, tls: TlsConfig | None) -> TlsConfig | None:
        if tls is None or tls.insecure:
            return tls
        if tls.min_version != "1.2" or tls.max_version:
            raise ValueError("min_version and max_version: Kafka's client always accepts TLS 1.2 and 1.3; remove them")
        if tls.server_name_override:
            raise ValueError(
                "server_name_override: Kafka's client checks the name of each broker; put these names into the"
                " certificates"
            )
        if tls.reload_interval:
            raise ValueError("reload_interval: Kafka's client reads its certificates once; remove it, and restart")
        return tls

    @property
    def uses_tls(self) -> bool:
        return self.tls is not None and not self.tls.insecure

    @property
    def place(self) -> str:
        """The brokers, for messages."""
        return ",".join(self.brokers)
