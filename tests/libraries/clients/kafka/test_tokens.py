"""The tokens of SASL OAUTHBEARER.

The thread of a producer ends with its owner.
"""

import asyncio
import base64
import json
import threading
from collections.abc import Mapping
from typing import Any

import pytest

from otel_zernel.authentication import ClientAuthenticator
from otel_zernel.clock import SystemClock
from otel_zernel.component import ComponentConfig
from otel_zernel.errors import CannotStart
from otel_zernel.testing import FakeClock, make_context, until
from otel_zernel_exporters.kafka import KafkaExporter
from otel_zernel_libraries.clients.kafka.producing import MessageProducer
from otel_zernel_libraries.clients.kafka.tokens import end_of, token_source

OPTIONS: dict[str, Any] = {"auth": {"sasl": {"mechanism": "OAUTHBEARER", "oauthbearer_token_source": "tokens"}}}


class Tokens(ClientAuthenticator):
    """Gives a fixed header."""

    def __init__(self, header: str) -> None:
        super().__init__(ComponentConfig(), make_context("extensions", "tokens"))
        self.header = header

    def headers(self) -> Mapping[str, str]:
        return {"authorization": self.header}


def jwt(**claims: float) -> str:
    body = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    return f"e30.{body}.c2ln"


def source(header: str) -> Any:
    config = KafkaExporter.Config.model_validate(OPTIONS)
    return token_source(config, make_context("exporters", "kafka", extensions={"tokens": Tokens(header)}))


def test_a_token_that_names_its_end_is_renewed_before_it() -> None:
    token = jwt(exp=1_800_000_000)
    assert source(f"Bearer {token}")("") == (token, 1_800_000_000.0)


def test_another_token_is_asked_for_every_five_minutes() -> None:
    assert source("bearer opaque")("") == ("opaque", FakeClock().time_ns() / 1e9 + 300)


def test_other_credentials_are_no_tokens() -> None:
    with pytest.raises(ValueError, match="the extension has no bearer token"):
        source("Basic abc")("")


def test_a_missing_extension_is_one_sentence() -> None:
    config = KafkaExporter.Config.model_validate(OPTIONS)
    with pytest.raises(CannotStart, match="extension tokens is not enabled"):
        token_source(config, make_context("exporters", "kafka"))


@pytest.mark.parametrize("token", ["", "a.b", "a.b.c", "a.!!.c", jwt(), "e30.e30.x"])
def test_an_unreadable_token_has_no_end(token: str) -> None:
    assert end_of(token) is None


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.endswith(" producer")]


async def test_a_start_that_is_cancelled_leaves_no_thread() -> None:
    """A reload or a Ctrl-C may cancel it before the client is there."""
    context = make_context("exporters", "kafka", clock=SystemClock())
    opening = asyncio.create_task(MessageProducer({"bootstrap.servers": "127.0.0.1:1"}, context).open())
    while not threads():  # noqa: ASYNC110  # the loop must not see the client before the cancellation
        await asyncio.sleep(0)
    opening.cancel()
    await asyncio.gather(opening, return_exceptions=True)
    assert opening.cancelled()
    await until(lambda: not threads())
