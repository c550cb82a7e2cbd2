"""The sentences in which mistakes are told."""

import json
from collections.abc import Collection, Iterable
from difflib import get_close_matches

_LONGEST = 300
"""Characters of one thing in a sentence."""


def quoted(text: str) -> str:
    """The text in double quotes, on one line, safe for any terminal, shortened where it is endless."""
    return json.dumps(_short(text), ensure_ascii=not text.isprintable())


def one_line(thing: object) -> str:
    """The thing's text on one line, shortened where it is endless."""
    return _short(" ".join(str(thing).split()))


def suggestion(word: str, valid: Collection[str], noun: str) -> str:
    """`; did you mean "csv"? valid types: csv, otlp`, as far as there is something to say."""
    close = get_close_matches(word, valid, n=1)
    guess = f"; did you mean {quoted(close[0])}?" if close else ";"
    return f"{guess} valid {noun}: {', '.join(sorted(valid)) or 'none'}"


def joined(path: Iterable[str | int]) -> str:
    """The path as users read it: `receivers::csv::files::0`."""
    return "::".join(_short(text) if text.isprintable() else quoted(text) for text in map(str, path))


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
