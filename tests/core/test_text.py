"""The wording of messages: escaped, and without secrets."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_zernel.text import shown_url, visible, without_query, without_secrets


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("grün, 漢字 and 😀", "grün, 漢字 and 😀"),
        ("a\nb\r\tc\x1b[31m\x00", r"a\nb\r\tc\x1b[31m\x00"),
        ("\u202etxt.exe\u2028", r"\u202etxt.exe\u2028"),
        (os.fsdecode(b"\xff/\x80"), r"\xff/\x80"),
        ("\ud800", r"\ud800"),
    ],
)
def test_characters_that_control_a_terminal_are_escaped(text: str, shown: str) -> None:
    assert visible(text) == shown


@given(st.text(st.characters()))
def test_visible_text_is_one_encodable_line(text: str) -> None:
    shown = visible(text)
    shown.encode()
    assert len(shown.splitlines()) <= 1


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("cannot reach https://host/a: refused", "cannot reach https://host/a: refused"),
        ("at https://token@host", "at https://[REDACTED]@host"),
        ("at grpc://a:b@c@host/x?y", "at grpc://[REDACTED]@host/x?[REDACTED]"),
        (
            "https://h?a=1&b=2;c=3#d and http://h/?k=v",
            "https://h?a=[REDACTED]&b=[REDACTED];c=[REDACTED]#d and http://h/?k=[REDACTED]",
        ),
        ("no answer from http://h/v1?k=v: refused", "no answer from http://h/v1?k=[REDACTED]: refused"),
        ("(at http://h/v1?secret)", "(at http://h/v1?[REDACTED])"),
        ("mail ada@example.org a=1", "mail ada@example.org a=1"),
    ],
)
def test_urls_lose_users_and_values_of_queries(text: str, shown: str) -> None:
    assert without_secrets(text) == shown


def test_secrets_of_fragments_are_removed() -> None:
    assert without_secrets("https://host/x#token=s3cret&a=b") == "https://host/x#token=[REDACTED]&a=[REDACTED]"


@pytest.mark.timeout(60)
@pytest.mark.parametrize("piece", ["a-", "-/", "a:", "-a:", "?", "a_", "token "])
def test_a_long_hostile_text_is_searched_at_once(piece: str) -> None:
    text = piece * 200_000 + " :// @ ? ="
    assert without_secrets(text) == text


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://host:4318/v1/metrics", "https://host:4318/v1/metrics"),
        ("https://ada:secret@host/x?token=s3cret#f", "https://host/x?[REDACTED]"),
        ("https://[bad/x?token=s3cret", "[REDACTED]"),
    ],
)
def test_a_url_in_a_message_has_no_secret(url: str, shown: str) -> None:
    assert shown_url(url) == shown


def test_a_server_that_repeats_the_query_does_not_make_it_known() -> None:
    assert without_query("no such token: k=s3cret", "https://host/x?k=s3cret") == "no such token: [REDACTED]"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("'me:s3cret@host:4317' is not an endpoint", "'[REDACTED]@host:4317' is not an endpoint"),
        (
            "retries exceeded with url: /v1?token=s3cret (refused)",
            "retries exceeded with url: /v1?token=[REDACTED] (refused)",
        ),
        ("Port could not be cast to integer value as 's3c'", "the port of the URL is not a number"),
        ("see https://host/x?s3cret", "see https://host/x?[REDACTED]"),
        ("the server says: api_key=s3cret, try again", "the server says: api_key=[REDACTED], try again"),
    ],
)
def test_secrets_in_parts_of_urls_are_not_shown(text: str, shown: str) -> None:
    assert without_secrets(text) == shown
    assert without_secrets(shown) == shown


@pytest.mark.parametrize(
    "text", ["at 12:30 by ops@example.org", "^/dev/nvidia[0-9]?$", "ipv4:127.0.0.1:1: refused", "a = b", "window=5s"]
)
def test_texts_without_secrets_stay_as_they_are(text: str) -> None:
    assert without_secrets(text) == text


def test_a_password_in_a_url_without_a_scheme_is_not_shown() -> None:
    assert shown_url("me:s3cret@host:4318/?token=s3cret") == "[REDACTED]@host:4318/?[REDACTED]"
