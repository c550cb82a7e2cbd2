"""The basicauth extension lets known users in, and adds a user name and a password to requests."""

import asyncio
import base64
import shutil
import subprocess
import threading
from pathlib import Path
from typing import Any

import bcrypt
import pytest
from passlib.apache import HtpasswdFile
from passlib.hash import (
    apr_md5_crypt,
    des_crypt,
    ldap_salted_sha1,
    ldap_sha1,
    md5_crypt,
    sha256_crypt,
    sha512_crypt,
)
from pydantic import ValidationError

from otel_zernel.authentication import AuthConfig, Unauthenticated, client_authenticator, server_authenticator
from otel_zernel.errors import CannotStart
from otel_zernel.testing import make_context, until
from otel_zernel_extensions.basicauth import BasicAuthExtension
from otel_zernel_extensions.basicauth.extension import PasswordCheck, Users


def extension(**fields: Any) -> BasicAuthExtension:
    context = make_context("extensions", "basicauth")
    return BasicAuthExtension(BasicAuthExtension.Config.model_validate(fields), context)


def basic(user: str, password: str) -> dict[str, str]:
    return {"authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}


async def accepts(auth: BasicAuthExtension, headers: dict[str, str]) -> bool:
    try:
        await auth.authenticate(headers)
    except Unauthenticated:
        return False
    return True


def bcrypt_of(password: str) -> str:
    return bcrypt.hashpw(password.encode(), bcrypt.gensalt(4)).decode().replace("$2b$", "$2y$")


def write(path: Path, content: str) -> None:
    path.write_text(content)


@pytest.mark.parametrize(
    "hash_",
    [
        bcrypt_of("pass:wörd"),
        ldap_sha1.hash("pass:wörd"),
        apr_md5_crypt.hash("pass:wörd"),
        sha256_crypt.using(rounds=1000).hash("pass:wörd"),
        sha512_crypt.using(rounds=1000).hash("pass:wörd"),
        ldap_salted_sha1.hash("pass:wörd"),
        md5_crypt.hash("pass:wörd"),
    ],
    ids=["bcrypt", "sha", "md5", "sha256", "sha512", "salted sha", "md5 of crypt"],
)
async def test_a_user_enters_with_the_password_alone(hash_: str) -> None:
    async with extension(htpasswd={"inline": f"ada:{hash_}\nbob:{bcrypt_of('other')}"}) as auth:
        for _ in range(2):  # computed, then remembered
            assert await accepts(auth, basic("ada", "pass:wörd"))
            assert not await accepts(auth, basic("ada", "pass:word"))
            assert not await accepts(auth, basic("bob", "pass:wörd"))
            assert not await accepts(auth, basic("eve", "pass:wörd"))


@pytest.mark.parametrize(
    "password",
    ["Abcdefgh12345", "ab", "a./Z0123456yz", des_crypt.using(salt="ab").hash("s3cret"), "{x}", "$$", "pass wörd"],
)
async def test_a_text_without_the_mark_of_a_hash_is_the_password_itself(
    password: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Thirteen letters, digits, dots and slashes would be a hash of DES, two of them its salt."""
    async with extension(htpasswd={"inline": f"ada:{password}\nbob:{bcrypt_of('other')}"}) as auth:
        assert await accepts(auth, basic("ada", password))
        assert not await accepts(auth, basic("ada", "s3cret"))
        assert await accepts(auth, basic("bob", "other"))
    (warning,) = [record.message for record in caplog.records]
    assert warning == "htpasswd has passwords in plain text, such as that of ada (1 in all): replace them with hashes"


async def test_hashes_cause_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    async with extension(htpasswd={"inline": f"ada:{bcrypt_of('x')}"}):
        assert caplog.text == ""


async def test_nobody_enters_before_the_users_are_read() -> None:
    assert not await accepts(extension(htpasswd={"inline": f"ada:{bcrypt_of('x')}"}), basic("ada", "x"))


@pytest.mark.parametrize(
    "value", ["", "Basic", "Basic !", "Basic YWRh", "Basic /w==", "Bearer YWRhOng=", "Basic " + "YTph" * 20_000]
)
async def test_a_malformed_header_is_refused(value: str) -> None:
    async with extension(htpasswd={"inline": f"ada:{bcrypt_of('x')}"}) as auth:
        assert not await accepts(auth, {"authorization": value})
        assert not await accepts(auth, {})


async def test_a_password_longer_than_bcrypt_allows_is_refused() -> None:
    async with extension(htpasswd={"inline": f"ada:{bcrypt_of('x' * 72)}"}) as auth:
        assert not await accepts(auth, basic("ada", "x" * 73))
        assert await accepts(auth, basic("ada", "x" * 72))


@pytest.mark.skipif(shutil.which("htpasswd") is None, reason="htpasswd (apache2-utils) is not installed")
@pytest.mark.parametrize("option", ["-B", "-m", "-s", "-2", "-5", "-p"])
async def test_a_file_of_apaches_own_program_is_read(option: str, tmp_path: Path) -> None:
    file = tmp_path / "users"
    subprocess.run(["htpasswd", "-c", "-b", option, str(file), "ada", "s3cret"], check=True)  # noqa: ASYNC221
    async with extension(htpasswd={"file": str(file)}) as auth:
        assert await accepts(auth, basic("ada", "s3cret"))
        assert not await accepts(auth, basic("ada", "other"))


async def test_a_changed_file_is_followed_and_a_bad_one_is_not(tmp_path: Path) -> None:
    file = tmp_path / "users"
    write(file, f"ada:{bcrypt_of('one')}\n")
    async with extension(htpasswd={"file": str(file), "inline": f"bob:{bcrypt_of('bob')}"}) as auth:
        assert await accepts(auth, basic("ada", "one"))
        write(file, "")
        await until(lambda: auth.context.health.problems)
        assert await accepts(auth, basic("ada", "one"))
        write(file, "no colon\n")
        await until(lambda: auth.context.health.problems)
        assert await accepts(auth, basic("ada", "one"))
        write(file, f"ada:{bcrypt_of('two')}\n")
        await until(lambda: not auth.context.health.problems)
        assert not await accepts(auth, basic("ada", "one"))
        assert await accepts(auth, basic("ada", "two"))
        assert await accepts(auth, basic("bob", "bob"))


async def test_clients_that_leave_do_not_start_several_computations_at_once() -> None:
    running, most, computed, release = 0, 0, 0, threading.Event()

    class Slow(Users):
        def knows(self, user: str, password: str) -> bool:
            nonlocal running, most, computed
            running += 1
            computed += 1
            most = max(most, running)
            release.wait(10)
            running -= 1
            return False

    users, check = Slow(f"ada:{bcrypt_of('x')}", "a::b"), PasswordCheck()
    try:
        for number in range(4):
            guess = asyncio.create_task(check(users, "ada", str(number)))
            await until(lambda: running > 0)
            for _ in range(10):  # a second computation would begin meanwhile
                await asyncio.to_thread(int)
            guess.cancel()
            await asyncio.gather(guess, return_exceptions=True)
    finally:
        release.set()
    with pytest.raises(Unauthenticated):
        await check(users, "ada", "last")
    assert (most, computed) == (1, 2)


async def test_slow_hashes_never_block_the_event_loop_and_their_number_is_bounded() -> None:
    computing = asyncio.Event()

    class Slow(Users):
        def knows(self, user: str, password: str) -> bool:
            loop.call_soon_threadsafe(computing.set)
            asyncio.run_coroutine_threadsafe(release.wait(), loop).result()
            return super().knows(user, password)

    loop, release = asyncio.get_running_loop(), asyncio.Event()
    async with extension(htpasswd={"inline": f"ada:{bcrypt_of('x')}"}) as auth:
        users = Slow(f"ada:{bcrypt_of('x')}", "a::b")
        guesses = [asyncio.create_task(auth._check(users, "ada", str(number))) for number in range(40)]
        await computing.wait()
        await until(lambda: sum(task.done() for task in guesses) == 8)
        release.set()
        results = await asyncio.gather(*guesses, return_exceptions=True)
        assert all(isinstance(result, Unauthenticated) for result in results)
        await auth._check(users, "ada", "x")


async def test_a_client_sends_its_credentials_and_follows_their_files(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    write(secret, "wörd\n")
    fields = {"client_auth": {"username": "ada", "password": "ignored", "password_file": str(secret)}}
    async with extension(**fields) as auth:
        assert auth.headers() == basic("ada", "wörd")
        write(secret, "new")
        await until(lambda: auth.headers() == basic("ada", "new"))
    async with extension(client_auth={"username": "ada", "password": "x"}) as auth:
        assert auth.headers() == basic("ada", "x")


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"htpasswd": {"file": "/nowhere"}}, "htpasswd::file: cannot read /nowhere: No such file"),
        ({"htpasswd": {"inline": "# nobody"}}, "there is no user"),
        ({"htpasswd": {"inline": "no colon"}}, "a line is not `user:hash`"),
        (
            {"client_auth": {"username_file": "/nowhere", "password": "x"}},
            "client_auth::username_file: cannot read /nowhere",
        ),
        ({"client_auth": {"username": "a", "password_file": "/dev/null"}}, "the user name or the password is empty"),
    ],
)
async def test_unusable_credentials_stop_the_start(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(CannotStart, match=words):
        async with extension(**fields):
            pass


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "set either htpasswd"),
        ({"htpasswd": {"inline": "a:b"}, "client_auth": {"username": "a", "password": "b"}}, "set either htpasswd"),
        ({"htpasswd": {}}, "no users are configured"),
        ({"client_auth": {"username": "a:b", "password": "c"}}, "must not contain a colon"),
        ({"client_auth": {"username": "a"}}, "no password is configured"),
        ({"client_auth": {"password": "a"}}, "no user name is configured"),
    ],
)
def test_an_incomplete_configuration_is_a_mistake(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        extension(**fields)


def test_an_instance_is_for_servers_or_for_clients() -> None:
    server = extension(htpasswd={"inline": f"ada:{HtpasswdFile().context.hash('x')}"})
    client = extension(client_auth={"username": "a", "password": "b"})
    context = make_context(extensions={"basicauth/in": server, "basicauth/out": client})
    inside, outside = AuthConfig(authenticator="basicauth/in"), AuthConfig(authenticator="basicauth/out")
    assert server_authenticator(inside, context, "a") is server
    assert client_authenticator(outside, context, "a") is client
    with pytest.raises(CannotStart, match="basicauth/out cannot check requests: set extensions::basicauth::htpasswd"):
        server_authenticator(outside, context, "a")
    with pytest.raises(
        CannotStart, match="basicauth/in cannot add credentials: set extensions::basicauth::client_auth"
    ):
        client_authenticator(inside, context, "a")
