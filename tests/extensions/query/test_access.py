"""The real authenticators in front of the routes, over HTTP: a client without credentials sees nothing of the store."""

from pathlib import Path
from typing import Any

import httpx
import pytest

from otel_zernel.component import Extension
from otel_zernel.testing import make_context
from otel_zernel_extensions.basicauth import BasicAuthExtension
from otel_zernel_extensions.bearertokenauth import BearerTokenAuthExtension
from tests.extensions.query.gateway import PATIENCE, gateway

PATHS = (
    "/api/v1/telemetry",
    "/api/v1/telemetry/hosts",
    "/api/v1/telemetry/hosts/n1/gpus",
    "/api/v1/telemetry/aggregations",
    "/api/v1/stats/summary",
    "/swagger/index.html",
    "/openapi.json",
)
METHODS: dict[str, tuple[type[Extension], dict[str, Any], dict[str, Any], str]] = {
    "bearer": (
        BearerTokenAuthExtension,
        {"token": "right"},
        {"headers": {"authorization": "Bearer right"}},
        "Bearer",
    ),
    "basic": (BasicAuthExtension, {"htpasswd": {"inline": "ada:secret\n"}}, {"auth": ("ada", "secret")}, "Basic"),
}
"""By method: the authenticator, its options, the credentials of a client, and the challenge."""


@pytest.mark.parametrize("method", METHODS)
def test_only_clients_with_credentials_are_answered(method: str, tmp_path: Path) -> None:
    kind, options, credentials, challenge = METHODS[method]
    keeper = kind(kind.Config.model_validate(options), make_context("extensions", method))
    with (
        gateway(tmp_path, {method: keeper}, auth={"authenticator": method}) as url,
        httpx.Client(base_url=url, trust_env=False, timeout=PATIENCE) as client,
    ):
        for path in PATHS:
            refused = client.get(path)
            assert refused.status_code == 401
            assert refused.headers["www-authenticate"].startswith(challenge)
            assert b"n1" not in refused.content
            assert client.get(path, headers={"authorization": f"{challenge} d3Jvbmc6d3Jvbmc="}).status_code == 401
            assert client.get(path, **credentials).status_code == 200
