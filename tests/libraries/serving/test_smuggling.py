"""Requests whose end is ambiguous: no second request is taken from the body of the first."""

import re
from typing import Any

import pytest

from tests.libraries.serving.clients import app, ask, served
from tests.libraries.serving.conftest import ON_BOTH_LOOPS

pytestmark = ON_BOTH_LOOPS

POST = b"POST / HTTP/1.1\r\nhost: a\r\n"
HIDDEN = b"GET /hidden HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n"
CHUNKED = b"transfer-encoding: chunked\r\n\r\n"
AMBIGUOUS = {
    "a length and chunks": POST + b"content-length: 5\r\n" + CHUNKED + b"0\r\n\r\n",
    "two lengths": POST + b"content-length: 5\r\ncontent-length: 0\r\n\r\nhello",
    "the same length twice": POST + b"content-length: 5\r\ncontent-length: 5\r\n\r\nhello",
    "a list of lengths": POST + b"content-length: 5, 5\r\n\r\nhello",
    "a length with a sign": POST + b"content-length: +5\r\n\r\nhello",
    "a negative length": POST + b"content-length: -5\r\n\r\nhello",
    "a length beyond all numbers": POST + b"content-length: 99999999999999999999999\r\n\r\nhello",
    "an unknown encoding": POST + b"transfer-encoding: xchunked\r\n\r\n0\r\n\r\n",
    "chunks that are not the last encoding": POST + b"transfer-encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    "a space before the colon": POST + b"transfer-encoding : chunked\r\n\r\n0\r\n\r\n",
    "a folded header": POST + b"transfer-encoding:\r\n chunked\r\n\r\n0\r\n\r\n",
    "line feeds alone": b"POST / HTTP/1.1\nhost: a\ncontent-length: 0\n\n",
    "a carriage return alone": b"POST / HTTP/1.1\r\nhost: a\rx: y\r\n\r\n",
    "a null character": b"GET / HTTP/1.1\r\nhost: a\r\nx: a\0b\r\n\r\n",
    "a chunk with a sign": POST + CHUNKED + b"+5\r\nhello\r\n0\r\n\r\n",
    "a chunk with a prefix": POST + CHUNKED + b"0x5\r\nhello\r\n0\r\n\r\n",
    "a chunk beyond all numbers": POST + CHUNKED + b"fffffffffffffffff\r\nhello\r\n0\r\n\r\n",
    "a chunk that ends with a line feed": POST + CHUNKED + b"5\nhello\n0\n\n",
    "a chunk with more data than it says": POST + CHUNKED + b"5\r\nhelloXX\r\n0\r\n\r\n",
    "a tunnel": b"CONNECT a:80 HTTP/1.1\r\nhost: a\r\n\r\n",
    "an old version with chunks": b"POST / HTTP/1.0\r\nhost: a\r\n" + CHUNKED + b"0\r\n\r\n",
}


@pytest.mark.parametrize("request_", AMBIGUOUS.values(), ids=AMBIGUOUS)
async def test_a_request_with_an_ambiguous_end_is_the_last_of_its_connection(request_: bytes) -> None:
    paths: list[str] = []

    async def listening(scope: Any, receive: Any, send: Any) -> None:
        paths.append(scope["path"])
        await app(scope, receive, send)

    async with served(listening) as address:
        heard = await ask(address, request_ + HIDDEN)
    assert "/hidden" not in paths
    assert len(re.findall(rb"^HTTP", heard, re.MULTILINE)) <= 1


async def test_a_request_behind_an_unambiguous_one_is_answered() -> None:
    async with served() as address:
        for first in (POST + b"content-length: 5\r\n\r\nhello", POST + CHUNKED + b"5\r\nhello\r\n0\r\n\r\n"):
            assert (await ask(address, first + HIDDEN)).count(b"HTTP/1.1 200 ") == 2
