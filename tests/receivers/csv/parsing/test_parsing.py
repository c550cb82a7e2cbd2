"""The fast parser and the plain one return the same rows, and only valid ones."""

import csv
import io
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from otel_zernel_libraries.files.sources import ReadBytes
from otel_zernel_receivers.csv.conversion import parse_block
from otel_zernel_receivers.csv.layouts.layout import ColumnPlan, WideLayout
from otel_zernel_receivers.csv.parsing.lines import MAX_LINE, LineBlock, LineReader
from otel_zernel_receivers.csv.parsing.plain import parse_lines
from otel_zernel_receivers.csv.parsing.rows import Dialect, ParsedRows
from otel_zernel_receivers.csv.parsing.times import parse_time

PLAN = ColumnPlan(4, 0, (("a", 1), ("b", 2)), (("v", 3),), sparse=False, layout=WideLayout())
SPARSE = ColumnPlan(4, 0, (("a", 1), ("b", 2)), (("v", 3),), sparse=True, layout=WideLayout())
TIMES = st.sampled_from(["2025-07-18T20:42:34Z", "1752871354", "2025-07-18 20:42:34.5"])
TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\r\n"))
NUMBERS = st.floats(allow_nan=False, allow_infinity=False).map(repr) | st.integers().map(str).filter(
    lambda n: len(n) < 99
)
ROWS = st.lists(st.tuples(TIMES, TEXTS, TEXTS, NUMBERS), min_size=1)
# Fragments of broken files.
BYTES = st.lists(
    st.sampled_from(
        [b",", b'"', b'""', b"\n", b"\r", b"\r\n", b"1", b"-.5e3", b"nan", b" ", b"\xff", b"\0", b"\xc3\xa9"]
    )
    | st.just(b"2025-07-18T20:42:34Z,")
    | st.just(b'1752871354,"x",y,1\n')
).map(b"".join)


def lines_of(data: bytes) -> LineBlock | None:
    stream = io.BytesIO(data)
    return next(LineReader(stream.read).blocks(1_000_000), None)


def plain(rows: ParsedRows) -> list[tuple[object, ...]]:
    """Rows as tuples of line, time, texts and the bits of numbers."""
    assert rows.times is not None
    texts = [[text.values[code] for code in text.codes] for text in rows.texts]
    numbers = [column.view(np.uint64).tolist() for column in rows.numbers]
    return list(zip(rows.lines.tolist(), rows.times.tolist(), *texts, *numbers, strict=True))


@given(ROWS, st.sampled_from(["\n", "\r\n"]), st.sampled_from([csv.QUOTE_ALL, csv.QUOTE_MINIMAL]))
def test_both_parsers_return_the_same_valid_rows(rows: list[tuple[str, ...]], end: str, quoting: int) -> None:
    file = io.StringIO(newline="")
    csv.writer(file, lineterminator=end, quoting=quoting).writerows(rows)  # type: ignore[arg-type]  # an int is accepted
    lines = lines_of(file.getvalue().encode())
    assert lines is not None
    fast = parse_block(lines, PLAN, Dialect())
    slow, bad = parse_lines(lines, PLAN, Dialect())
    assert fast is not None
    assert not bad
    assert plain(fast) == plain(slow)
    assert [(row[2], row[3]) for row in plain(slow)] == [(row[1].strip(), row[2].strip()) for row in rows]
    assert slow.numbers[0].tolist() == [float(row[3]) for row in rows]


@given(BYTES, st.sampled_from([PLAN, SPARSE]))
@example(b'1752871354,"a\n1752871354,b",c,1\n', PLAN)
@example(b'1752871354,"a""b,c,1\n', PLAN)
@example(b"1752871354,a,b,\n", SPARSE)
@example(b'1752871354,"a"b"c,b,1\n', PLAN)
def test_the_fast_parser_agrees_with_the_plain_one_or_declines(data: bytes, plan: ColumnPlan) -> None:
    lines = lines_of(data)
    if lines is None:
        return
    slow, bad = parse_lines(lines, plan, Dialect())
    fast = parse_block(lines, plan, Dialect())
    if fast is not None:
        assert not bad
        assert plain(fast) == plain(slow)
    blank = sum(not line.strip() for line in lines)
    assert len(slow) + len(bad) + blank == len(lines.ends)


@given(st.lists(st.binary(max_size=9)), st.integers(1, 5))
def test_blocks_are_independent_of_the_pieces_of_the_stream(pieces: list[bytes], size: int) -> None:
    stream = iter([piece for piece in pieces if piece])
    blocks = [block for block in LineReader(lambda _: next(stream, b"")).blocks(size) if block]
    data = b"".join(pieces)
    whole = data if not data or data.endswith(b"\n") else data + b"\n"
    assert b"".join(block.data for block in blocks) == whole
    assert [line for block in blocks for line in block] == [line + b"\n" for line in whole.split(b"\n")[:-1]]
    assert all(len(block.ends) == size for block in blocks[:-1])
    assert [block.first for block in blocks] == [1 + size * number for number in range(len(blocks))]


def test_an_overlong_line_is_read_in_bounded_memory() -> None:
    pieces = iter([b"x" * 100_000] * 50 + [b"x\nnext\n"])
    reader = LineReader(lambda _: next(pieces, b""))
    (block,) = [block for block in reader.blocks(10) if block]
    assert [len(line) for line in block] == [MAX_LINE + 2, 5]
    assert [row.reason for row in parse_lines(block, PLAN, Dialect())[1]] == ["line too long", "wrong column count"]


LENGTHS = st.lists(st.integers(0, 20) | st.sampled_from([MAX_LINE - 1, MAX_LINE + 1, 3 * MAX_LINE]), max_size=8)


@given(LENGTHS, st.integers(1, 3), st.integers(50_000, 4 * MAX_LINE), st.booleans())
def test_reading_from_the_end_of_a_block_yields_the_blocks_after_it(
    lengths: list[int], size: int, piece: int, ended: bool
) -> None:
    data = b"\n".join(b"y" * length for length in lengths) + b"\n" * ended
    blocks = list(_blocks(data, size, piece, LineReader))
    for index, block in enumerate(blocks):
        go_on = partial(LineReader, number=block.first + len(block.ends), offset=block.end)
        rest = _blocks(data[block.end :], size, piece, go_on)
        assert list(map(_plain_block, rest)) == list(map(_plain_block, blocks[index + 1 :]))
    assert not blocks or blocks[-1].end == len(data)


def _blocks(data: bytes, size: int, piece: int, reader: Callable[[ReadBytes], LineReader]) -> Iterator[LineBlock]:
    stream = io.BytesIO(data)
    return (block for block in reader(lambda _: stream.read(piece)).blocks(size) if block)


def _plain_block(block: LineBlock) -> tuple[list[bytes], int, int]:
    """The lines as far as they count: what is cut off a long line depends on the pieces of the stream."""
    return [line[:MAX_LINE] for line in block], block.first, block.end


def test_a_header_counts_for_the_offset() -> None:
    stream = io.BytesIO(b"t,v\r\n1,2\n")
    reader = LineReader(stream.read)
    assert reader.peek_line() == b"t,v\r\n"
    reader.skip_line()
    (block,) = reader.blocks(10)
    assert block
    assert (block.data, block.first, block.end) == (b"1,2\n", 2, 9)


SECOND = 1_752_871_354 * 10**9


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2025-07-18T20:42:34Z", SECOND),
        ("2025-07-18t20:42:34z", SECOND),
        ("2025-07-18T22:42:34+02:00", SECOND),
        ("2025-07-18T20:42:34.123456789Z", SECOND + 123_456_789),
        ("2025-07-18T20:42:34.1234567899Z", SECOND + 123_456_789),
        ("2025-07-18 20:42:34", SECOND),
        ("2025-07-18 20:42:34.5", SECOND + 500_000_000),
        (" 1752871354 ", SECOND),
        ("1752871354.123456789", SECOND + 123_456_789),
        ("1752871354123", SECOND + 123_000_000),
        ("1752871354123.5", SECOND + 123_500_000),
        ("1752871354123456", SECOND + 123_456_000),
        ("1752871354123456789", SECOND + 123_456_789),
    ],
)
def test_times_are_parsed_to_the_nanosecond(text: str, expected: int) -> None:
    assert parse_time(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0",
        "-1",
        "now",
        "2025-07-18",
        "2025-13-01T00:00:00Z",
        "2025-07-18T25:00:00Z",
        "1969-12-31T23:59:59Z",
        "2600-01-01T00:00:00Z",
        "0001-01-01T00:00:00+23:59",
        "1e9",
        "nan",
        "99999999999999999999",
        "١٧٥٢٨٧١٣٥٤",
    ],
)
def test_an_invalid_time_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"time|range|month|hour|year"):
        parse_time(text)


@given(st.integers(1, 2**63))
def test_every_rfc_3339_time_is_parsed_exactly(ns: int) -> None:
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=ns // 10**9)
    assert parse_time(f"{moment:%Y-%m-%dT%H:%M:%S}.{ns % 10**9:09d}Z") == ns


@given(st.text())
def test_any_text_is_a_time_or_a_value_error(text: str) -> None:
    with suppress(ValueError):
        assert 0 < parse_time(text) < 2**64
