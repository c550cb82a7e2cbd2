"""Regular expressions of topics, which Python and Kafka's client must read alike."""

import re
from typing import Final

_SHARED: Final = re.compile(
    r"""(?x)
    (?:
        (?: \\[][(){}.*+?|^$\\-]             # an escaped operator
          | \[\^?\]? (?: (?!--|&&|~~|\|\|) [^][\\] )* \]   # a set without escapes
          | [^][(){}*+?|^$\\] | \)           # a character, or the end of a group
        )
        (?: [*+?] | \{[0-9]{1,3}(?:,[0-9]{0,3})?\} )?
      | [|^$]
      | \( (?!\?)
    )*"""
)
"""POSIX's extended syntax, which the client uses, as far as Python's `re` finds the same topics with it."""


def check_pattern(pattern: str) -> None:
    """Raises `ValueError` if Python and Kafka's client do not both accept the text, with the same meaning."""
    if not _SHARED.fullmatch(pattern):
        raise ValueError(
            f"{pattern!r} is not a regular expression of POSIX, which Kafka's client needs: write [0-9] for \\d,"
            " [A-Za-z0-9_] for \\w, and no (?...), lazy operators or escapes in brackets"
        )
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"{pattern!r} is not a regular expression: {error}") from error
