"""Regular expressions in the syntax of RE2, which is that of the OpenTelemetry Collector.

RE2 needs time in proportion to the length of the text, whatever the expression: `(x+x+)+y` cannot stop the event loop.
Where it is not installed, Python's `re` takes its place for the expressions that are safe there.
"""

import re
from functools import lru_cache
from typing import Any

from otel_zernel.text import quoted
from otel_zernel_libraries.conditions.backtracking import MalformedPattern, PatternNeedsRe2, bounded
from otel_zernel_libraries.conditions.errors import InvalidPattern
from otel_zernel_libraries.extras import missing_packages

LONGEST_TEXT = 65_536
"""Characters of a text that an expression sees. Most expressions need under 1 ms for them; repetitions of hundreds of
alternatives, such as `(.*a){20}b.{300}`, need up to 100 ms."""
_CACHED_LENGTH = 200
_CACHED_TEXTS = 4096
_REFERENCE = re.compile(r"\$\$|\$\{(\w+)\}|\$(\w+)", re.ASCII)


class Pattern:
    """A compiled regular expression. It sees the first 65,536 characters of a text, and fewer without RE2."""

    __slots__ = ("_cached", "_longest", "_regexp", "names", "text")

    def __init__(self, text: str) -> None:
        """Raises `InvalidPattern`."""
        self.text = text
        self._regexp, self._longest = _compile(text)
        self.names: tuple[str, ...] = _group_names(self._regexp)
        """The name of each group, from 1 on; empty for a group without a name."""
        self._cached = lru_cache(_CACHED_TEXTS)(self._search)

    def is_found_in(self, text: str) -> bool:
        """Whether the expression matches anywhere in the text. Results for short texts are cached."""
        return self._cached(text) if len(text) <= _CACHED_LENGTH else self._search(text)

    def _search(self, text: str) -> bool:
        return self._regexp.search(text[: self._longest]) is not None

    def groups_in(self, text: str) -> tuple[str, ...] | None:
        """The first match: the whole and then each group. A group that took no part is empty. None without a match."""
        match = self._regexp.search(text[: self._longest])
        return (match.group(0), *(group or "" for group in match.groups())) if match else None

    def replace_in(self, text: str, replacement: str) -> str:
        """The text with every match replaced. `$1` and `${name}` are the groups of the match, as in Go."""
        if len(text) > self._longest or not self.is_found_in(text):
            return text
        return str(self._regexp.sub(lambda match: self._expand(match, replacement), text))

    def _expand(self, match: Any, replacement: str) -> str:
        return expand(replacement, self.names, (match.group(0), *(group or "" for group in match.groups())))


def expand(template: str, names: tuple[str, ...], groups: tuple[str, ...]) -> str:
    """The template with `$1`, `${1}`, `$name` and `${name}` replaced, as Go's `Regexp.Expand` does; `$$` is `$`.

    `groups` has the whole match first. A name or number without a group is replaced by nothing.
    """
    values = {str(number): group for number, group in enumerate(groups)}
    values |= {name: group for name, group in zip(names, groups[1:], strict=True) if name}

    def replaced(match: re.Match[str]) -> str:
        return "$" if match[0] == "$$" else values.get(match[1] or match[2] or "", "")

    return _REFERENCE.sub(replaced, template)


def _compile(text: str) -> tuple[Any, int]:
    """The expression, and how many characters of a text it sees."""
    try:
        import re2  # takes time
    except ImportError:
        return _compiled_without_re2(text)
    options = re2.Options()
    options.log_errors = False  # otherwise RE2 writes to stderr
    try:
        return re2.compile(text, options), LONGEST_TEXT
    except re2.error as error:
        raise _invalid(text, _reason(error)) from None


def _compiled_without_re2(text: str) -> tuple[Any, int]:
    try:
        return bounded(text, LONGEST_TEXT)
    except MalformedPattern as error:
        raise _invalid(text, str(error)) from None
    except PatternNeedsRe2 as error:
        needs = missing_packages(f"the regular expression {quoted(text)}", "re2")
        raise InvalidPattern(f"{needs} ({error})") from None


def _invalid(text: str, reason: str) -> InvalidPattern:
    return InvalidPattern(f"not a regular expression of RE2: {quoted(text)}: {reason}")


def _reason(error: Exception) -> str:
    (reason,) = error.args or ("",)
    return reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)


def _group_names(regexp: Any) -> tuple[str, ...]:
    names = {number: name for name, number in regexp.groupindex.items()}
    return tuple(names.get(number, "") for number in range(1, regexp.groups + 1))
