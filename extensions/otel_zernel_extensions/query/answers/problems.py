"""Errors as problems: https://www.rfc-editor.org/rfc/rfc9457"""

from http import HTTPStatus
from typing import Any

from otel_zernel_extensions.query.requests.parameters import ParameterError
from otel_zernel_libraries.serving.api.answers import ApiError, json_bytes, plain_answer

PROBLEM = "application/problem+json"


async def problem_answer(send: Any, error: ApiError) -> None:
    """Answers with the status and the sentence of an error, and the parameter that caused it."""
    value: dict[str, Any] = {
        "type": "about:blank",
        "title": HTTPStatus(error.status).phrase,
        "status": error.status,
        "detail": str(error),
    }
    if isinstance(error, ParameterError):
        value["parameter"] = error.name
    await plain_answer(send, json_bytes(value), PROBLEM, error.status, error.headers)
