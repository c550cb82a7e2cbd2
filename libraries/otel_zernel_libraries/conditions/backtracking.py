"""Regular expressions of RE2 for Python's `re`, where RE2 is not installed.

`re` tries the ways to match one after another. An expression is taken only if the number of its ways is bounded, and it
sees only as much of a text as this number allows. Each part means the same as in RE2; parts that differ are refused.
"""

import math
import re
from typing import Final, NamedTuple

_MOST_STEPS: Final = 50_000_000
"""Characters that `re` may compare for a text: about 0.2 s."""
_SHORTEST: Final = 64
"""Characters that an expression must be able to see. Names of metrics are rarely longer."""
_MOST_REPEATS: Final = 1000
"""The largest number in `x{n}`, as in RE2."""
_GROUP: Final = re.compile(r"\(\?(?:P?<(?P<name>[A-Za-z_]\w*)>|(?P<flags>[is]*):)", re.ASCII)
_FLAGS: Final = re.compile(r"\(\?([is]+)\)")
_COUNTS: Final = re.compile(r"\{(\d{1,4})(,(\d{0,4}))?\}", re.ASCII)
_SPACE: Final = r"\t\n\f\r "
_CLASSES: Final = {"d": r"\d", "w": r"\w", "s": _SPACE, "D": r"\D", "W": r"\W"}
"""Inside of brackets. Python's `\\s` also has the vertical tab."""
_ALONE: Final = _CLASSES | {"s": f"[{_SPACE}]", "S": f"[^{_SPACE}]"}
_PLACES: Final = {"A": r"\A", "z": r"\Z", "b": r"\b", "^": r"\A", "$": r"\Z"}
"""Python's `$` also matches before a line break at the end."""
_CONTROLS: Final = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


class MalformedPattern(ValueError):
    """No regular expression, in RE2 neither. The message is the reason."""


class PatternNeedsRe2(ValueError):
    """`re` has no such part, or would need too long. The message is the reason."""


class BoundedPattern(NamedTuple):
    """A compiled expression, and how many characters of a text it may see."""

    regexp: re.Pattern[str]
    longest: int


def bounded(text: str, longest: int) -> BoundedPattern:
    """`longest`: characters of a text that no expression exceeds. Raises `MalformedPattern` and `PatternNeedsRe2`."""
    translation = _Translation(text)
    python, ways = translation.translated()
    try:
        regexp = re.compile(python, re.ASCII)
    except (re.error, OverflowError, RecursionError) as error:
        raise PatternNeedsRe2(str(error)) from None
    seen = _length(ways)
    if seen < _SHORTEST:
        raise PatternNeedsRe2("Python's `re` would try too many ways to match")
    return BoundedPattern(regexp, min(seen, longest))


class _Ways(NamedTuple):
    """How an expression can match from one place."""

    choices: int = 1
    """The product of its bounded choices."""
    open: int = 0
    """Repetitions without a bound. Each has as many choices as the text has characters."""
    steps: int = 0
    """Characters, classes and places of one way."""

    def then(self, following: "_Ways") -> "_Ways":
        return _Ways(self.choices * following.choices, self.open + following.open, self.steps + following.steps)

    def instead(self, another: "_Ways") -> "_Ways":
        return _Ways(self.choices + another.choices, max(self.open, another.open), max(self.steps, another.steps))

    def repeated(self, least: int, most: int | None) -> "_Ways":
        if most is None:
            if self.choices > 1 or self.open:
                raise PatternNeedsRe2("Python's `re` can need exponential time where a repetition has choices in it")
            return _Ways(1, 1, max(least, 1) * self.steps)
        if (most * self.choices.bit_length() > 64 and self.choices > 1) or most * self.open > 8:
            raise PatternNeedsRe2("Python's `re` would try too many ways to match")
        return _Ways(self.choices**most * (most - least + 1), self.open * most, self.steps * most)


def _length(ways: _Ways) -> int:
    """The longest text whose tries stay within the bound: the text's n places and open repetitions choose k of n."""
    chosen = ways.open + 1
    each = ways.choices * max(ways.steps, 1)
    if each > _MOST_STEPS:
        return 0
    return int((_MOST_STEPS * math.factorial(chosen) / each) ** (1 / chosen))


class _Translation:
    """Reads an expression from the left, and writes it in Python's syntax."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def translated(self) -> tuple[str, _Ways]:
        """The whole expression. Raises `MalformedPattern` and `PatternNeedsRe2`."""
        flags = _FLAGS.match(self._text)
        if flags:
            self._at = flags.end()
        try:
            python, ways = self._alternatives()
        except RecursionError:
            raise PatternNeedsRe2("its groups are too deep for Python's `re`") from None
        if self._at < len(self._text):
            raise MalformedPattern("unexpected )")
        if re.search(r"\(\?[is]*i", python + (flags[0] if flags else "")) and not self._text.isascii():
            raise PatternNeedsRe2("Python's `re` ignores the case of ASCII letters only")
        return (flags[0] if flags else "") + python, ways

    def _alternatives(self) -> tuple[str, _Ways]:
        python, ways = self._sequence()
        while self._take("|"):
            written, another = self._sequence()
            python, ways = f"{python}|{written}", ways.instead(another)
        return python, ways

    def _sequence(self) -> tuple[str, _Ways]:
        python, ways = "", _Ways()
        while self._at < len(self._text) and self._text[self._at] not in "|)":
            written, following = self._repeated()
            python, ways = python + written, ways.then(following)
        return python, ways

    def _repeated(self) -> tuple[str, _Ways]:
        is_place = self._text.startswith(("^", "$", r"\A", r"\z", r"\b"), self._at)
        if self._is_repetition():
            raise MalformedPattern("no argument for repetition operator")
        python, ways = self._atom()
        counts = self._quantifier()
        if counts is None:
            return python, ways
        if is_place:
            raise PatternNeedsRe2("Python's `re` repeats no place")
        least, most = counts
        most_written = "" if most is None else most
        lazy = "?" if self._take("?") else ""
        if self._is_repetition():
            raise MalformedPattern("bad repetition operator: two in a row")
        return f"{python}{{{least},{most_written}}}{lazy}", ways.repeated(least, most)

    def _quantifier(self) -> tuple[int, int | None] | None:
        if self._take("*"):
            return 0, None
        if self._take("+"):
            return 1, None
        if self._take("?"):
            return 0, 1
        counts = _COUNTS.match(self._text, self._at)
        if counts is None:
            return None
        self._at = counts.end()
        least = int(counts[1])
        most = least if counts[2] is None else int(counts[3]) if counts[3] else None
        if max(least, most or 0) > _MOST_REPEATS or (most is not None and most < least):
            raise MalformedPattern(f"invalid repetition size: {counts[0]}")
        return least, most

    def _is_repetition(self) -> bool:
        return self._text.startswith(("*", "+", "?"), self._at) or bool(_COUNTS.match(self._text, self._at))

    def _atom(self) -> tuple[str, _Ways]:
        character = self._text[self._at]
        if character == "(":
            return self._group()
        self._at += 1
        if character == "[":
            return self._class(), _Ways(steps=1)
        if character == "\\":
            return self._escape(), _Ways(steps=1)
        if character in "^$":
            return _PLACES[character], _Ways(steps=1)
        return "." if character == "." else re.escape(character), _Ways(steps=1)

    def _group(self) -> tuple[str, _Ways]:
        opening = "("
        if self._text.startswith("(?", self._at):
            group = _GROUP.match(self._text, self._at)
            if group is None:
                raise PatternNeedsRe2("a group begins with (?")
            opening = f"(?P<{group['name']}>" if group["name"] else group[0]
            self._at = group.end()
        else:
            self._at += 1
        python, ways = self._alternatives()
        if not self._take(")"):
            raise MalformedPattern("missing )")
        return f"{opening}{python})", ways._replace(steps=ways.steps + 1)

    def _escape(self) -> str:
        letter = self._letter()
        if letter in _ALONE:
            return _ALONE[letter]
        return _PLACES[letter] if letter in "Azb" else re.escape(self._literal(letter))

    def _letter(self) -> str:
        """The character after a backslash."""
        if self._at == len(self._text):
            raise MalformedPattern("trailing \\")
        self._at += 1
        return self._text[self._at - 1]

    def _literal(self, letter: str) -> str:
        """The character that an escape stands for."""
        if letter in _CONTROLS:
            return _CONTROLS[letter]
        if letter == "x" and (digits := re.compile(r"[0-9A-Fa-f]{2}").match(self._text, self._at)):
            self._at = digits.end()
            return chr(int(digits[0], 16))
        if letter.isalnum() or not letter.isascii():
            raise PatternNeedsRe2(f"\\{letter} is not known")
        return letter

    def _class(self) -> str:
        opening = "[^" if self._take("^") else "["
        python, is_first = "", True
        while is_first or not self._take("]"):
            is_first = False
            low = self._member()
            if len(low) == 1 and self._text[self._at : self._at + 1] == "-" and self._text[self._at + 1 :][:1] != "]":
                self._at += 1
                high = self._member()
                if len(high) != 1 or high < low:
                    raise MalformedPattern("invalid character class range")
                python += f"{re.escape(low)}-{re.escape(high)}"
            else:
                python += re.escape(low) if len(low) == 1 else low
        return f"{opening}{python}]"

    def _member(self) -> str:
        """A character, or several: a class in Python's syntax."""
        if self._at >= len(self._text):
            raise MalformedPattern("missing ]")
        if self._text.startswith("[:", self._at):
            raise PatternNeedsRe2("Python's `re` has no classes such as [:alpha:]")
        self._at += 1
        character = self._text[self._at - 1]
        if character != "\\":
            return character
        letter = self._letter()
        if letter == "S":
            raise PatternNeedsRe2(r"\S in brackets is not known")
        return _CLASSES[letter] if letter in _CLASSES else self._literal(letter)

    def _take(self, character: str) -> bool:
        is_next = self._text.startswith(character, self._at)
        self._at += is_next
        return is_next
