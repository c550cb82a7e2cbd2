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
        ("at grpc://a:b@c@host/x?y", "at grpc://[REDACTED]@host/x?y"),
        (
            "https://h?a=1&b=2;c=3#d and http://h/?k=v",
            "https://h?a=[REDACTED]&b=[REDACTED];c=[REDACTED]#d and http://h/?k=[REDACTED]",
        ),
        ("mail ada@example.org a=1", "mail ada@example.org a=1"),
    ],
)
def test_urls_lose_users_and_values_of_queries(text: str, shown: str) -> None:
    assert without_secrets(text) == shown


def test_secrets_of_fragments_are_removed() -> None:
    assert without_secrets("https://host/x#token=s3cret&a=b") == "https://host/x#token=[REDACTED]&a=[REDACTED]"


@pytest.mark.timeout(5)
def test_a_long_hostile_text_is_searched_at_once() -> None:
    text = "a-" * 200_000 + " ://"
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
