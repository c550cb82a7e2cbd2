"""The grammar of conditions and statements, a part of OTTL's.

statement   = call [ "where" either ]
either      = both { "or" both }                 "or" binds weakest
both        = negated { "and" negated }
negated     = "not" negated | "(" either ")" | comparison
comparison  = value [ operator value ]           without an operator: a call or true or false
value       = constant | ENUM | path | call | list
path        = word { "." word } { "[" string | int "]" }
call        = Word "(" [ value { "," value } ] ")"
list        = "[" [ value { "," value } ] "]"
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from otel_zernel.text import quoted, suggestion
from otel_zernel_libraries.conditions.errors import InvalidCondition
from otel_zernel_libraries.conditions.fields import ENUMS
from otel_zernel_libraries.conditions.values import OPERATORS, Value

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
        if (replacement := _ESCAPED.get(code)) is None:
            problem = rf"unknown escape {quoted(match[0])}; write \\ for a backslash"
            raise InvalidCondition(problem, condition, word.position + 1 + match.start())
        return replacement

    return _ESCAPE.sub(character, word.text[1:-1])


_DEEPEST = 50
"""Levels of nesting. Python's own stack ends at about 1,000 calls."""
_KEYWORDS = frozenset({"and", "or", "not", "where"})


@dataclass(frozen=True, slots=True)
class Constant:
    value: Value
    position: int


@dataclass(frozen=True, slots=True)
class FieldPath:
    """`resource.attributes["k"]`: the names, and the keys behind them."""

    names: tuple[str, ...]
    keys: tuple[str | int, ...]
    position: int

    def __str__(self) -> str:
        return ".".join(self.names)


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """A function and its arguments."""

    name: str
    arguments: tuple["ValueNode", ...]
    position: int


@dataclass(frozen=True, slots=True)
class ValueList:
    values: tuple["ValueNode", ...]
    position: int


ValueNode = Constant | FieldPath | FunctionCall | ValueList


@dataclass(frozen=True, slots=True)
class Comparison:
    left: ValueNode
    operation: str
    right: ValueNode


@dataclass(frozen=True, slots=True)
class Negation:
    inner: "ConditionNode"


@dataclass(frozen=True, slots=True)
class AllOf:
    parts: tuple["ConditionNode", ...]


@dataclass(frozen=True, slots=True)
class AnyOf:
    parts: tuple["ConditionNode", ...]


ConditionNode = AnyOf | AllOf | Negation | Comparison | FunctionCall | Constant


@dataclass(frozen=True, slots=True)
class Statement:
    """`set(attributes["k"], "v") where name == "x"`."""

    editor: FunctionCall
    where: ConditionNode | None


def parse_condition(text: str) -> ConditionNode:
    """The tree of a condition. Raises `InvalidCondition`."""
    parser = _Parser(text)
    tree = parser.either()
    parser.expect_end()
    return tree


def parse_statement(text: str) -> Statement:
    """The tree of a statement. Raises `InvalidCondition`."""
    parser = _Parser(text)
    editor = parser.value()
    if not isinstance(editor, FunctionCall):
        raise InvalidCondition("a statement must begin with a function, such as set(...)", text, editor.position)
    where = parser.either() if parser.skip("where") else None
    parser.expect_end()
    return Statement(editor, where)


class _Parser:
    """Recursive descent over the words of one text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._words = words_of(text)
        self._next = 0
        self._depth = 0

    def either(self) -> ConditionNode:
        parts = [self._both()]
        while self.skip("or"):
            parts.append(self._both())
        return parts[0] if len(parts) == 1 else AnyOf(tuple(parts))

    def _both(self) -> ConditionNode:
        parts = [self._negated()]
        while self.skip("and"):
            parts.append(self._negated())
        return parts[0] if len(parts) == 1 else AllOf(tuple(parts))

    def _negated(self) -> ConditionNode:
        self._enter()
        result: ConditionNode
        if self.skip("not"):
            result = Negation(self._negated())
        elif self.skip("("):
            result = self.either()
            self._expect(")")
        else:
            result = self._comparison()
        self._depth -= 1
        return result

    def _comparison(self) -> ConditionNode:
        left = self.value()
        if self._peek.text in OPERATORS:
            operation = self._take().text
            return Comparison(left, operation, self.value())
        if isinstance(left, FunctionCall) or (isinstance(left, Constant) and isinstance(left.value, bool)):
            return left
        raise self._error("expected one of == != < <= > >=")

    def value(self) -> ValueNode:
        self._enter()
        word = self._take()
        result = self._value(word)
        self._depth -= 1
        return result

    def _value(self, word: Word) -> ValueNode:
        position = word.position
        match word.kind:
            case "string":
                return Constant(unescaped(word, self._text), position)
            case "int":
                return Constant(self._integer(word), position)
            case "float":
                return Constant(float(word.text), position)
            case "bytes":
                return Constant(self._bytes(word), position)
            case "word" if word.text not in _KEYWORDS:
                return self._named(word)
            case "symbol" if word.text == "[":
                return ValueList(self._values("]"), position)
        self._next -= 1
        raise self._error("expected a value")

    def _named(self, word: Word) -> ValueNode:
        if word.text in ("true", "false", "nil"):
            return Constant({"true": True, "false": False, "nil": None}[word.text], word.position)
        if self.skip("("):
            return FunctionCall(word.text, self._values(")"), word.position)
        if word.text[0].isupper():
            return self._enum(word)
        names = [word.text]
        while self.skip("."):
            names.append(self._take_kind("word", "a name after the dot").text)
        return FieldPath(tuple(names), self._keys(), word.position)

    def _enum(self, word: Word) -> Constant:
        if word.text not in ENUMS:
            hint = suggestion(word.text, [name for name in ENUMS if name[:3] == word.text[:3]], "names")
            raise InvalidCondition(f"unknown name {quoted(word.text)}{hint}", self._text, word.position)
        return Constant(ENUMS[word.text], word.position)

    def _keys(self) -> tuple[str | int, ...]:
        keys: list[str | int] = []
        while self.skip("["):
            word = self._take()
            if word.kind not in ("string", "int"):
                self._next -= 1
                raise self._error("expected a key in double quotes or an index")
            keys.append(unescaped(word, self._text) if word.kind == "string" else self._integer(word))
            self._expect("]")
        return tuple(keys)

    def _values(self, end: str) -> tuple[ValueNode, ...]:
        """Values and commas up to `end`, which is taken too."""
        if self.skip(end):
            return ()
        values = [self.value()]
        while self.skip(","):
            values.append(self.value())
        self._expect(end)
        return tuple(values)

    def _integer(self, word: Word) -> int:
        value = int(word.text) if len(word.text) < 25 else 2**63
        if not -(2**63) <= value < 2**63:
            raise InvalidCondition("the integer has more than 64 bits", self._text, word.position)
        return value

    def _bytes(self, word: Word) -> bytes:
        if len(word.text) % 2:
            raise InvalidCondition("bytes need an even number of hex digits", self._text, word.position)
        return bytes.fromhex(word.text[2:])

    @property
    def _peek(self) -> Word:
        return self._words[self._next]

    def _take(self) -> Word:
        word = self._peek
        self._next += 1
        return word

    def _take_kind(self, kind: str, meaning: str) -> Word:
        if self._peek.kind != kind:
            raise self._error(f"expected {meaning}")
        return self._take()

    def skip(self, text: str) -> bool:
        """Takes the next word if it is this one."""
        if self._peek.text != text or self._peek.kind == "string":
            return False
        self._next += 1
        return True

    def _expect(self, text: str) -> None:
        if not self.skip(text):
            raise self._error(f"expected {quoted(text)}")

    def expect_end(self) -> None:
        """Raises `InvalidCondition` if words are left."""
        if self._peek.kind != "end":
            raise self._error("expected the end")

    def _enter(self) -> None:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise self._error(f"more than {_DEEPEST} levels of nesting")

    def _error(self, problem: str) -> InvalidCondition:
        place = f", found {quoted(self._peek.text)}" if self._peek.text else ", found the end"
        return InvalidCondition(problem + place, self._text, self._peek.position)
