"""The `auth` block of Kafka clients. Names are those of the OpenTelemetry Collector."""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from otel_zernel.authentication import Authenticator
from otel_zernel.types import ExtensionId, Secret, Section

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
