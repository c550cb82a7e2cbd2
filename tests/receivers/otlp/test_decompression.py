"""Decompression stops at its limit: 10 GB of zeros take no more memory than the limit."""

import gzip
import random
import resource
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from otel_zernel_libraries.serving.requests.decompression import decompress
from otel_zernel_libraries.serving.requests.failures import RequestFailure
from tests.receivers.otlp.serving import COMPRESS

LIMIT = 20 << 20
BOMB, MEMBER = 10 << 30, 128 << 20
"""Bytes after decompression. Compressing the members of a bomb takes most of the time of its test."""


@pytest.mark.parametrize("encoding", COMPRESS)
@given(body=st.binary(max_size=2000))
def test_every_encoding_is_undone(encoding: str, body: bytes) -> None:
    assert decompress(encoding, COMPRESS[encoding](body), 2000, "limit") == body


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
def test_several_members_are_one_body(encoding: str) -> None:
    pieces = COMPRESS[encoding](b"one ") + COMPRESS[encoding](b"two")
    assert decompress(encoding, pieces, 7, "limit") == b"one two"
    with pytest.raises(RequestFailure, match="larger than limit"):
        decompress(encoding, pieces, 6, "limit")


@pytest.mark.parametrize("encoding", COMPRESS)
@given(data=st.data())
def test_damaged_bodies_are_undecodable_or_too_large(encoding: str, data: st.DataObject) -> None:
    whole = bytearray(COMPRESS[encoding](b"0123456789" * 20))
    position = data.draw(st.integers(0, len(whole) - 1))
    whole[position] ^= data.draw(st.integers(1, 255))
    cut = bytes(whole[: data.draw(st.integers(0, len(whole)))])
    try:
        assert len(decompress(encoding, cut, 500, "limit")) <= 500
    except RequestFailure as failure:
        assert failure.reason in ("undecodable", "too_large")  # noqa: PT017


def zeros(compressor: Any, flush: Callable[[], bytes]) -> Iterator[bytes]:
    """`MEMBER` zeros, compressed."""
    for _ in range(MEMBER >> 24):
        yield compressor.compress(bytes(1 << 24))
    yield flush()


def bomb(encoding: str) -> bytes:
    """10 GiB of zeros in 80 members or frames of gzip or zstd; zlib has one stream of `MEMBER`."""
    if encoding == "zstd":
        compressor = zstandard.ZstdCompressor(level=1).compressobj()
        return b"".join(zeros(compressor, compressor.flush)) * (BOMB // MEMBER)
    window = 31 if encoding == "gzip" else 15
    stream = zlib.compressobj(9, wbits=window)
    return b"".join(zeros(stream, stream.flush)) * (BOMB // MEMBER if encoding == "gzip" else 1)


@pytest.mark.parametrize("encoding", ["gzip", "zlib", "zstd"])
def test_a_bomb_is_too_large_and_takes_no_memory(encoding: str) -> None:
    body = bomb(encoding)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(RequestFailure, match="larger than limit"):
        decompress(encoding, body, LIMIT, "limit")
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10
    assert grown < 4 * LIMIT


@pytest.mark.parametrize("encoding", ["snappy", "x-snappy-framed", "lz4"])
def test_a_large_body_of_zeros_is_too_large_or_whole(encoding: str) -> None:
    body = COMPRESS[encoding](bytes(1 << 20))
    assert decompress(encoding, body, 1 << 20, "limit") == bytes(1 << 20)
    with pytest.raises(RequestFailure, match="larger than limit"):
        decompress(encoding, body, (1 << 20) - 1, "limit")


def test_snappy_is_recognised_in_its_framing_format() -> None:
    assert decompress("snappy", COMPRESS["x-snappy-framed"](b"abc" * 99), 1000, "limit") == b"abc" * 99


def test_a_zstd_frame_that_names_its_size_is_limited_too() -> None:
    body = zstandard.ZstdCompressor(write_content_size=True).compress(bytes(64 << 20))
    assert zstandard.frame_content_size(body) == 64 << 20
    with pytest.raises(RequestFailure, match="larger than limit"):
        decompress("zstd", body, LIMIT, "limit")


def test_a_zstd_window_beyond_8_mib_is_refused() -> None:
    parameters = zstandard.ZstdCompressionParameters(window_log=27)
    compressor = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    body = compressor.compress(bytes(1000)) + compressor.flush()
    with pytest.raises(RequestFailure, match="not valid zstd"):
        decompress("zstd", body, LIMIT, "limit")


@pytest.mark.parametrize("encoding", COMPRESS)
def test_a_body_that_was_cut_off_is_not_taken_for_a_whole_one(encoding: str) -> None:
    content = random.Random(0).randbytes(300_000)  # several blocks of zstd
    whole = COMPRESS[encoding](content)
    for size in (len(whole) - 1, len(whole) - 4, 150_000, 9):  # the framing format begins with 10 bytes
        with pytest.raises(RequestFailure, match="is not valid"):
            decompress(encoding, whole[:size], LIMIT, "limit")


def test_a_gzip_body_of_very_many_members_is_refused_at_once() -> None:
    with pytest.raises(RequestFailure, match="more than 100 members"):
        decompress("gzip", gzip.compress(b"") * 20_000, LIMIT, "limit")
