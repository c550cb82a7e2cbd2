"""Regular expressions of topics, which Python and Kafka's client must read alike."""

import re
from typing import Final

SHARED_SYNTAX: Final = re.compile(
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
