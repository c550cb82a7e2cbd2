"""The words of the condition language."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from otel_zernel.text import quoted
from otel_zernel_libraries.conditions.errors import InvalidCondition

LONGEST_CONDITION = 10_000
"""Characters of a condition at most. Longer ones are a mistake, and would nest too deeply."""

_TOKEN = re.compile(
    r"""(?P<space>\s+)
    |(?P<string>"(?:[^"\\]|\\.)*")
    |(?P<bytes>0x[0-9a-fA-F]*)
    |(?P<float>[-+]?\d*\.\d+(?:[eE][-+]?\d+)?)
    |(?P<int>[-+]?\d+)
    |(?P<word>[A-Za-z_]\w*)
    |(?P<symbol>==|!=|<=|>=|[<>()\[\],.])""",
    re.VERBOSE | re.DOTALL | re.ASCII,
)
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-7]{3}|.)", re.DOTALL)
_ESCAPED = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "\\": "\\", '"': '"'}


class Word(NamedTuple):
    """One word of a condition. `kind` is `string`, `bytes`, `float`, `int`, `word`, `symbol` or `end`."""

    kind: str
    text: str
    position: int


def words_of(text: str) -> list[Word]:
    """The words, and one of kind `end`. Raises `InvalidCondition`."""
    if len(text) > LONGEST_CONDITION:
        raise InvalidCondition(f"a condition may have {LONGEST_CONDITION} characters", text, LONGEST_CONDITION)
    return [*_words(text), Word("end", "", len(text))]


def _words(text: str) -> Iterator[Word]:
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise InvalidCondition(_unknown(text[position:]), text, position)
        kind = str(match.lastgroup)
        if kind != "space":
            yield Word(kind, match[0], position)
        position = match.end()


def _unknown(rest: str) -> str:
    if rest[0] == '"':
        return "the text in double quotes does not end"
    if rest[0] == "'":
        return "write texts in double quotes, not single ones"
    if rest[0] in "+-*/":
        return f"calculations ({rest[0]}) are not supported"
    if rest[0] == "{":
        return "maps ({...}) are not supported"
    if rest[:2] in ("&&", "||") or rest[0] in "=!":
        return f"unexpected {quoted(rest[:2].strip())}; the operators are == != < <= > >= and or not"
    return f"unexpected {quoted(rest[0])}"


def unescaped(word: Word, condition: str) -> str:
    """The characters of a text in double quotes, with the escapes of Go. Raises `InvalidCondition`."""

    def character(match: re.Match[str]) -> str:
        code = match[1]
        if len(code) > 1:
            number = int(code, 8) if code.isdigit() and len(code) == 3 else int(code[1:], 16)
            if number <= 0x10FFFF and not 0xD800 <= number < 0xE000:
                return chr(number)
        if (found := _ESCAPED.get(code)) is None:
            problem = rf"unknown escape {quoted(match[0])}; write \\ for a backslash"
            raise InvalidCondition(problem, condition, word.position + 1 + match.start())
        return found

    return _ESCAPE.sub(character, word.text[1:-1])
