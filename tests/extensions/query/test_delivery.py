"""How answers are delivered: compressed, and with a validator that is as old as the answer."""

import gzip

import pytest
import zstandard

from tests.extensions.query.serving import BEGIN, SECOND, Served, gauge

PLAIN = f"/telemetry?start_time={BEGIN // SECOND}"


@pytest.mark.parametrize(
    ("accepted", "encoding"), [("gzip", "gzip"), ("gzip, zstd", "zstd"), ("zstd;q=0, gzip", "gzip")]
)
async def test_compressed_answers_have_the_same_content(served: Served, accepted: str, encoding: str) -> None:
    await served.write(gauge("hw.power", [float(place) for place in range(50)]))
    plain = await served.get(PLAIN)
    assert "content-encoding" not in plain.headers
    answer = await served.get(PLAIN, {"accept-encoding": accepted})
    assert answer.headers["content-encoding"] == encoding
    unpacked = gzip.decompress if encoding == "gzip" else zstandard.ZstdDecompressor().decompress
    assert unpacked(answer.body) == plain.body
    assert answer.headers["etag"] != plain.headers["etag"]


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/telemetry?time_range=2h", 200),
        ("/telemetry/aggregations", 200),
        (f"/telemetry?time_range=2h&end_time={BEGIN // SECOND + 60}", 304),
        (f"/telemetry/aggregations?end_time={BEGIN // SECOND + 60}", 304),
    ],
)
async def test_an_answer_about_the_time_until_now_is_never_not_modified(served: Served, path: str, status: int) -> None:
    await served.write(gauge("hw.power", [1.0]))
    first = await served.get(path)
    served.clock.advance(1.0)
    assert (await served.get(path, {"if-none-match": first.headers["etag"]})).status == status
