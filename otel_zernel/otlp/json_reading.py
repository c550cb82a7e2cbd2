"""Reads a long JSON document value by value.

`json.loads` holds Python's lock for the whole document: 0.5 s for 20 MB, with the collection of the many small objects.
Here each call into C reads one value out of at most 256 KiB. Others can run in between.
"""

import json
import re
from collections.abc import Callable, Iterator
from json import JSONDecodeError, JSONDecoder, decoder, scanner
from typing import Any, Final

_BLOCK: Final = 256 << 10
"""Characters that one call into C reads at most. That takes up to 4 ms."""
MOST_VALUES: Final = 200_000
"""Values inside all those that are longer than a block. An attribute or a histogram has far fewer."""
_CUT: Final = frozenset(("", ".", "e", "E", "e+", "E+", "e-", "E-"))
"""The ends of a block behind which a value may go on: a number is read without its unfinished exponent."""
_SPACE: Final = re.compile(r"[ \t\n\r]*")


def parse_int_of(text: bytes | str) -> Callable[[str], Any] | None:
    """`parse_int` of `json` for a document: JSON's -0 is a number with a sign, and Python has no such integer."""
    has_it = b"-0" in text if isinstance(text, bytes) else "-0" in text
    return _signed if has_it else None  # C reads integers faster than a function


def _signed(digits: str) -> int | float:
    return -0.0 if digits == "-0" else int(digits)


class JsonReader:
    """Reads one document from its beginning to its end. All functions raise `ValueError` if it is malformed."""

    def __init__(self, text: str, block: int = _BLOCK) -> None:
        self._text = text
        self._size = block
        self._block = text[:block]
        self._start = 0
        """The position of the block in the text."""
        self._position = 0
        """The position in the block."""
        self._scan = JSONDecoder(parse_int=parse_int_of(text)).raw_decode
        self._scan_long = _CountingDecoder(MOST_VALUES).raw_decode

    def peek(self) -> str:
        """The next character that is not white space; empty at the end."""
        while True:
            match = _SPACE.match(self._block, self._position)
            self._position = match.end() if match else self._position
            if self._position < len(self._block):
                return self._block[self._position]
            if self._is_last:
                return ""
            self._cut()

    def take(self, character: str) -> bool:
        """Skips the character if it is the next one."""
        is_next = self.peek() == character
        self._position += is_next
        return is_next

    def expect(self, character: str) -> None:
        """Skips the character, which must be the next one."""
        if not self.take(character):
            raise self._error(f"Expecting {character!r}")

    def properties(self) -> Iterator[str]:
        """The keys of an object. The caller reads each value before the next key."""
        self.expect("{")
        if self.take("}"):
            return
        while True:
            if self.peek() != '"':
                raise self._error("Expecting property name enclosed in double quotes")
            key = self.value()
            self.expect(":")
            yield key
            if self.take("}"):
                return
            self.expect(",")

    def elements(self) -> Iterator[None]:
        """One turn for each element of an array. The caller reads it."""
        self.expect("[")
        if self.take("]"):
            return
        while True:
            yield
            if self.take("]"):
                return
            self.expect(",")

    def value(self) -> Any:
        """The next value, as `json.loads` has it."""
        self.peek()
        value, end = self._try()
        if end is None and self._position:
            self._cut()
            value, end = self._try()
        if end is None:
            value, end = self._read_long()
        self._position = end
        return value

    def end(self) -> None:
        """The document must end here."""
        if self.peek():
            raise self._error("Extra data")

    @property
    def _is_last(self) -> bool:
        """Whether the block reaches the end of the text."""
        return self._start + len(self._block) >= len(self._text)

    def _cut(self) -> None:
        """Begins a new block at the position."""
        self._start += self._position
        self._block = self._text[self._start : self._start + self._size]
        self._position = 0

    def _try(self) -> tuple[Any, int | None]:
        """The value and its end in the block. No end: the value may go on behind the block, or is malformed."""
        try:
            value, end = self._scan(self._block, self._position)
        except JSONDecodeError:
            return None, None
        is_whole = self._is_last or self._block[end:] not in _CUT
        return value, (end if is_whole else None)

    def _read_long(self) -> tuple[Any, int]:
        """A value that is longer than a block, read in Python. The next block begins behind it."""
        value, end = self._scan_long(self._text, self._start + self._position)
        self._start = end
        self._block = self._text[end : end + self._size]
        return value, 0

    def _error(self, message: str) -> JSONDecodeError:
        return JSONDecodeError(message, self._text, self._start + self._position)


class _CountingDecoder(JSONDecoder):
    """Decodes in Python, and counts the values. Texts are read in C, which is fast.

    It consists of the parts that the standard library uses where its decoder in C is missing.
    """

    def __init__(self, most: int) -> None:
        super().__init__()
        self._left = most
        parts: Any = decoder
        self.parse_string = self._counted(parts.scanstring)
        self.parse_float = self._counted(float)
        self.parse_int = self._counted(_signed)
        self.parse_object = self._counted(parts.JSONObject)
        self.parse_array = self._counted(parts.JSONArray)
        in_python: Any = scanner
        self.scan_once = in_python.py_make_scanner(self)

    def _counted(self, parse: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any) -> Any:
            self._left -= 1
            if self._left < 0:
                raise ValueError(f"its long values have more than {MOST_VALUES} values inside")
            return parse(*arguments)

        return counted


def text_of(document: bytes | str) -> str:
    """The characters of a document, whose encoding `json.loads` would detect. Raises `ValueError`."""
    if isinstance(document, str):
        return document
    return document.decode(json.detect_encoding(document), "surrogatepass")
