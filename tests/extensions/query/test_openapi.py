"""The description of the routes is valid, and every answer fits it."""

import json
from collections.abc import Iterator
from typing import Any
from urllib.request import urlopen

import pytest
from hypothesis import HealthCheck, given, settings
from openapi_spec_validator import OpenAPIV31SpecValidator

from tests.extensions.query.gateway import PATIENCE, gateway

schemathesis = pytest.importorskip("schemathesis")

EXAMPLES = 25
"""Requests for each route."""
PATHS = (
    "/api/v1/telemetry",
    "/api/v1/telemetry/hosts",
    "/api/v1/telemetry/hosts/{host_id}/gpus",
    "/api/v1/telemetry/aggregations",
    "/api/v1/stats/summary",  # this and the next one have no parameters to be wrong
    "/health",
)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with gateway(tmp_path_factory.mktemp("gateway")) as url:
        yield url


def test_the_description_is_valid_openapi(base: str) -> None:
    with urlopen(f"{base}/openapi.json", timeout=PATIENCE) as answer:
        described = json.load(answer)
    OpenAPIV31SpecValidator(described).validate()
    assert {*PATHS} <= {*described["paths"]}


@pytest.mark.parametrize(
    ("path", "mode"), [*((path, "positive") for path in PATHS), *((path, "negative") for path in PATHS[:4])]
)
def test_no_request_breaks_the_server_and_each_answer_fits_the_description(base: str, path: str, mode: str) -> None:
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi.checks import (
        content_type_conformance,
        response_schema_conformance,
        status_code_conformance,
    )

    checks = [not_a_server_error, content_type_conformance, response_schema_conformance, status_code_conformance]
    operation = schemathesis.openapi.from_url(f"{base}/openapi.json")[path]["GET"]

    @settings(
        max_examples=EXAMPLES, derandomize=True, database=None, deadline=None, suppress_health_check=[*HealthCheck]
    )
    @given(case=operation.as_strategy(generation_mode=schemathesis.GenerationMode(mode)))
    def ask(case: Any) -> None:
        case.call_and_validate(checks=checks)

    ask()
