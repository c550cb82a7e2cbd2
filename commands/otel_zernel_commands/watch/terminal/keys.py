"""The names of keys, from the bytes that a terminal sends."""

import codecs
from typing import Final

_SEQUENCES: Final = {
    "[A": "up",
    "[B": "down",
    "[H": "home",
    "[F": "end",
    "OA": "up",
    "OB": "down",
    "OH": "home",
    "OF": "end",
    "[1~": "home",
    "[4~": "end",
    "[5~": "page up",
    "[6~": "page down",
    "[7~": "home",
    "[8~": "end",
}
_SINGLE: Final = {
    "\r": "enter",
    "\n": "enter",
    "\x7f": "backspace",
    "\x08": "backspace",
    "\x03": "ctrl-c",
    "\x0c": "ctrl-l",
}
_LONGEST: Final = 32
"""Characters of an escape sequence. Longer ones are no keys."""


class KeyReader:
    """Keeps the beginning of a sequence until its rest comes."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("ignore")
        self._rest = ""

    @property
    def is_waiting(self) -> bool:
        """Whether an escape character has come. Without a rest after some ms, it is the key Esc: call `flush`."""
        return bool(self._rest)

    def feed(self, data: bytes) -> list[str]:
        """The keys. A printable character is its own name."""
        text, self._rest = self._rest + self._decoder.decode(data), ""
        keys = []
        while text:
            if text[0] != "\x1b":
                keys.append(_SINGLE.get(text[0], text[0]))
                text = text[1:]
                continue
            length = _sequence_length(text)
            if length is None:
                self._rest = text
                break
            keys.append("escape" if length == 1 else _SEQUENCES.get(text[1:length], ""))
            text = text[length:]
        return [key for key in keys if key]

    def flush(self) -> list[str]:
        """The key Esc, if nothing has followed it."""
        is_escape, self._rest = self._rest == "\x1b", ""
        return ["escape"] if is_escape else []


def _sequence_length(text: str) -> int | None:
    """The characters of the escape sequence at the beginning; None if it is not complete (ECMA-48 5.4)."""
    if len(text) == 1:
        return None
    if text[1] == "O":
        return 3 if len(text) > 2 else None
    if text[1] != "[":
        return 1
    for position, character in enumerate(text[2:_LONGEST], 2):
        if "@" <= character <= "~":
            return position + 1
    return None if len(text) < _LONGEST else 1
