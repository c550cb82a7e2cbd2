"""The head of an answer and its body are one write."""

import asyncio
from typing import Any, cast

import pytest

from otel_zernel_libraries.serving.http1.connection import HeadWithBody

HEAD = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n"


class RecordingTransport:
    """Records what is written."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.closed = False

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed


@pytest.fixture
def transport() -> RecordingTransport:
    return RecordingTransport()


@pytest.fixture
async def answer(transport: RecordingTransport) -> HeadWithBody:
    return HeadWithBody(cast("Any", transport), asyncio.get_running_loop())


async def test_head_and_body_are_one_write(answer: HeadWithBody, transport: RecordingTransport) -> None:
    answer.write(HEAD)
    answer.write(b"body")
    await asyncio.sleep(0)
    assert transport.written == [HEAD + b"body"]


async def test_later_parts_are_written_at_once(answer: HeadWithBody, transport: RecordingTransport) -> None:
    for part in (HEAD, b"one", b"two"):
        answer.write(part)
    assert transport.written == [HEAD + b"one", b"two"]


async def test_a_head_does_not_wait_for_an_application_that_waits(
    answer: HeadWithBody, transport: RecordingTransport
) -> None:
    answer.write(HEAD)
    assert transport.written == []
    await asyncio.sleep(0)
    assert transport.written == [HEAD]


async def test_an_empty_body_sends_the_head(answer: HeadWithBody, transport: RecordingTransport) -> None:
    answer.write(HEAD)
    answer.write(b"")
    assert transport.written == [HEAD]


async def test_an_interim_answer_does_not_wait(answer: HeadWithBody, transport: RecordingTransport) -> None:
    answer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    assert transport.written == [b"HTTP/1.1 100 Continue\r\n\r\n"]
    answer.write(HEAD)
    answer.write(b"body")
    assert transport.written[1:] == [HEAD + b"body"]


async def test_a_large_body_is_not_copied(answer: HeadWithBody, transport: RecordingTransport) -> None:
    body = bytes(1 << 20)
    answer.write(HEAD)
    answer.write(body)
    assert transport.written[0] == HEAD
    assert transport.written[1] is body


async def test_closing_sends_the_head_first(answer: HeadWithBody, transport: RecordingTransport) -> None:
    answer.write(HEAD)
    answer.close()
    assert transport.written == [HEAD]
    assert answer.is_closing()


async def test_nothing_is_written_after_the_connection_has_closed(
    answer: HeadWithBody, transport: RecordingTransport
) -> None:
    answer.write(HEAD)
    transport.close()
    await asyncio.sleep(0)
    assert transport.written == []
