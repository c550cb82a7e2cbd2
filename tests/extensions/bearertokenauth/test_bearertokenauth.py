"""The bearertokenauth extension lets requests with a token in, and adds a token to requests."""

from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import ValidationError

from otel_zernel.authentication import (
    AuthConfig,
    Unauthenticated,
    client_authenticator,
    server_authenticator,
)
from otel_zernel.component import Extension
from otel_zernel.errors import CannotStart
from otel_zernel.testing import make_context, until
from otel_zernel.types import Address
from otel_zernel_extensions.bearertokenauth import BearerTokenAuthExtension
from otel_zernel_libraries.serving.access import protected
from otel_zernel_libraries.serving.serving import serve


def extension(**fields: Any) -> BearerTokenAuthExtension:
    context = make_context("extensions", "bearertokenauth")
    return BearerTokenAuthExtension(BearerTokenAuthExtension.Config.model_validate(fields), context)


async def accepts(auth: BearerTokenAuthExtension, headers: dict[str, str]) -> bool:
    try:
        await auth.authenticate(headers)
    except Unauthenticated:
        return False
    return True


def write(path: Path, content: str) -> None:
    path.write_text(content)


async def test_only_a_request_with_the_token_enters() -> None:
    async with extension(token="s3cret") as auth:
        assert await accepts(auth, {"authorization": "Bearer s3cret"})
        for wrong in ("Bearer s3cre", "Bearer s3crets", "s3cret", "Basic s3cret", "", "Bearer \xff", "Bearer \udc80"):
            assert not await accepts(auth, {"authorization": wrong})
        assert not await accepts(auth, {})


async def test_every_token_enters_and_the_first_one_is_sent() -> None:
    async with extension(tokens=["old", "new"], token="ignored") as auth:
        assert [await accepts(auth, {"authorization": f"Bearer {one}"}) for one in ("old", "new", "ignored")] == [
            True,
            True,
            False,
        ]
        assert auth.headers() == {"authorization": "Bearer old"}


async def test_nobody_enters_before_the_file_is_read() -> None:
    """An extension that serves, such as health_check, may be listed first."""
    assert not await accepts(extension(filename="/nowhere"), {"authorization": "Bearer "})


async def test_header_and_scheme_can_be_chosen() -> None:
    async with extension(token="a", header="X-Api-Key", scheme="") as auth:
        assert auth.headers() == {"x-api-key": "a"}
        assert await accepts(auth, {"x-api-key": "a"})


async def test_a_changed_file_is_followed_and_an_empty_one_is_not(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    write(file, "one\r\n\n two \n")
    async with extension(filename=str(file), token="ignored") as auth:
        assert await accepts(auth, {"authorization": "Bearer two"})
        write(file, "")
        await until(lambda: auth.context.health.problems)
        assert await accepts(auth, {"authorization": "Bearer two"})
        write(file, "three")
        await until(lambda: auth.headers() == {"authorization": "Bearer three"})
        assert not await accepts(auth, {"authorization": "Bearer two"})
        assert not auth.context.health.problems


@pytest.mark.parametrize("content", [None, b"", b"two words", b"\xff\xfe", b"a" * (1 << 21)])
async def test_an_unusable_file_is_named_without_its_content(content: bytes | None, tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(CannotStart) as failed:
        async with extension(filename=str(file)):
            pass
    assert str(failed.value).startswith("extensions::bearertokenauth::filename: ")
    assert str(file) in str(failed.value)
    assert "two words" not in str(failed.value)


async def test_the_start_waits_for_the_file_if_wanted(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    auth = extension(filename=str(file), file_retry={"enabled": True, "max_retries": 3, "retry_interval": "5s"})

    class Creates:
        """A clock on which the file appears during the second sleep."""

        slept = 0.0

        async def sleep(self, seconds: float) -> None:
            self.slept += seconds
            if self.slept == 10:
                write(file, "late")

    object.__setattr__(auth.context, "clock", clock := Creates())
    await auth._wait_for_file()
    assert clock.slept == 10


@pytest.mark.parametrize("fields", [{}, {"tokens": []}, {"token": ""}, {"token": "a b"}, {"token": "a\n"}])
def test_a_configuration_without_a_usable_token_is_a_mistake(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="token"):
        extension(**fields)


def test_a_token_is_never_printed() -> None:
    auth = extension(token="s3cret", tokens=["s3cret"])
    assert "s3cret" not in repr(auth.config)
    with pytest.raises(ValidationError) as failed:
        extension(token="s3cret key")
    assert "token must be printable" in failed.value.errors()[0]["msg"]


async def test_a_server_answers_401_and_names_the_scheme_before_it_reads_the_body() -> None:
    reached = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        reached.append(scope["path"])
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body"})

    async with (
        extension(token="s3cret") as auth,
        httpx.AsyncClient() as client,
        serve(protected(app, auth), Address("localhost", 0), "a::b") as address,
    ):
        refused = await client.post(f"http://{address}/", content=b"x" * 1_000_000)
        assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
        assert reached == []
        entered = await client.post(f"http://{address}/", headers=dict(auth.headers()))
        assert entered.status_code == 200


def test_a_component_gets_its_authenticator_by_id_or_a_clear_error() -> None:
    auth = extension(token="a")
    other = Extension(None, make_context("extensions", "other"))
    context = make_context(extensions={"bearertokenauth": auth, "other": other})
    for find in (server_authenticator, client_authenticator):
        assert find(None, context, "receivers::test::auth") is None
        assert find(AuthConfig(authenticator="bearertokenauth"), context, "receivers::test::auth") is auth
        with pytest.raises(CannotStart, match="receivers::test::auth::authenticator: extension other cannot"):
            find(AuthConfig(authenticator="other"), context, "receivers::test::auth")
        with pytest.raises(CannotStart, match="extension missing is not enabled"):
            find(AuthConfig(authenticator="missing"), context, "receivers::test::auth")
