"""The wording of error messages."""

import json
import re
from collections.abc import Collection, Iterable
from urllib.parse import urlsplit, urlunsplit

_LONGEST = 300
"""Characters of a quoted value in a message."""


REDACTED = "[REDACTED]"
_SHORTEST_SECRET = 4
"""Characters. A shorter query is no secret, and replacing it would garble the text around it."""
_URL = re.compile(r"\b[A-Za-z][A-Za-z0-9+.-]{0,30}://[^\s\"'<>]+")
_USER_IN_URL = re.compile(r"(?<=://)[^/?#]*@")
_QUERY_VALUE = re.compile(r"([?&;#][^=&;#]*)=[^&;#]+")
_BARE_QUERY = re.compile(r"\?[^=&;#?]+(?=#|$)")
"""A query without a name, such as `?secret`."""
_END_IN_SENTENCE = re.compile(r"(?<=\w)[:,)]$")
"""The punctuation of the sentence after a URL, as in `no answer from URL: refused`."""
_USER_WITHOUT_SCHEME = re.compile(r"(?<![\w:/@])[^\s/:@\"'<>=]{1,100}:[^\s/@\"'<>]{1,300}@(?=[\w\[])")
"""As in `user:password@host:4317`, which is written where a scheme is forgotten."""
_PATH_WITH_QUERY = re.compile(r"(?<![\w:/.])/[^\s\"'<>?]{0,200}\?[^\s\"'<>=]+=[^\s\"'<>]+")
"""Libraries write the path of a URL by itself: `url: /v1/metrics?token=...`."""
_NAMED_SECRET = re.compile(
    r"\b((?:[a-z]+[-_])?(?:token|api[-_]?key|password|passwd|secret|signature))=[^\s&;,\"'<>]+", re.IGNORECASE
)
_WRONG_PORT = re.compile(r"Port could not be cast to integer value as (?:'[^']*'|\"[^\"]*\")")
"""The sentence of urllib for `http://user:pass/word@host`, with the beginning of the password."""
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")
"""Control characters, line breaks, invisible and direction-changing characters, and bytes that are no UTF-8."""


def visible(text: str) -> str:
    """The text, in which every character that could forge a line or control a terminal is escaped: `\\n`, `\\x1b`.

    Bytes that Python decoded with `surrogateescape`, as in paths, become `\\xff`. The result can be encoded as UTF-8.
    """
    return _UNPRINTABLE.sub(_escaped, text)


def without_secrets(text: str) -> str:
    """The text, in which the URLs have neither users and passwords nor the values of their queries and fragments.

    Many services take a token in the query: `https://host/v1/metrics?token=[REDACTED]`. Parts of URLs, as libraries and
    typing mistakes leave them, are treated alike.
    """
    if "://" in text:
        text = _URL.sub(_without_secrets, text)
    if "@" in text:
        text = _USER_WITHOUT_SCHEME.sub(f"{REDACTED}@", text)
    text = _WRONG_PORT.sub("the port of the URL is not a number", text)
    if "?" in text:
        text = _PATH_WITH_QUERY.sub(lambda path: _without_query(path[0]), text)
    return _NAMED_SECRET.sub(rf"\1={REDACTED}", text) if "=" in text else text


def _without_secrets(url: re.Match[str]) -> str:
    return _without_query(_USER_IN_URL.sub(f"{REDACTED}@", url[0]))


def _without_query(url: str) -> str:
    end = _END_IN_SENTENCE.search(url)
    url, rest = (url[: end.start()], end[0]) if end else (url, "")
    return _BARE_QUERY.sub(f"?{REDACTED}", _QUERY_VALUE.sub(rf"\1={REDACTED}", url)) + rest


def shown_url(url: str) -> str:
    """The URL without its user, password, query and fragment, which may be secret."""
    if "://" not in url and "@" in url:
        return f"{REDACTED}@{shown_url(url.rpartition('@')[2])}"
    try:
        parts = urlsplit(url)
    except ValueError:
        return REDACTED
    place = parts.netloc.rpartition("@")[2]
    hidden = place != parts.netloc or parts.query or parts.fragment
    text = urlunsplit((parts.scheme, place, parts.path, "", ""))
    return f"{text}?{REDACTED}" if hidden else text


def without_query(text: str, url: str) -> str:
    """The text of a server or a library, without the query of our URL, which servers like to repeat."""
    try:
        query = urlsplit(url).query
    except ValueError:
        return text
    return text.replace(query, REDACTED) if len(query) >= _SHORTEST_SECRET else text


def _escaped(match: re.Match[str]) -> str:
    character = match[0]
    if "\udc80" <= character <= "\udcff":
        return f"\\x{ord(character) - 0xDC00:02x}"
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")


def quoted(text: str) -> str:
    """The text in double quotes, on one line, without control characters, shortened to 300 characters."""
    return json.dumps(_short(text), ensure_ascii=not text.isprintable())


def one_line(value: object) -> str:
    """The value as text on one line, shortened to 300 characters."""
    return _short(" ".join(str(value).split()))


def spoken_duration(seconds: float) -> str:
    """A duration in its two largest units: `0.4 s`, `42 s`, `3 m 5 s`, `2 h 10 m`, `1 d 3 h`."""
    if seconds < 9.95:
        return f"{max(0.0, seconds):.1f}".removesuffix(".0") + " s"
    parts, rest = [], round(seconds)
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "m"), (1, "s")):
        count, rest = divmod(rest, size)
        parts.append((count, unit))
    first = next(place for place, (count, _) in enumerate(parts) if count)
    return " ".join(f"{count} {unit}" for count, unit in parts[first : first + 2] if count)


def suggestion(word: str, valid: Collection[str], noun: str) -> str:
    """The end of a message about an unknown word: `; did you mean "csv"? valid types: csv, otlp`."""
    from difflib import get_close_matches  # only for mistakes, so that the collector starts quickly

    close = get_close_matches(word, valid, n=1)
    guess = f"; did you mean {quoted(close[0])}?" if close else ";"
    return f"{guess} valid {noun}: {', '.join(sorted(valid)) or 'none'}"


def joined(path: Iterable[str | int]) -> str:
    """A path in the configuration, as messages write it: `receivers::csv::files::0`."""
    return "::".join(map(printable, map(str, path)))


def printable(text: str) -> str:
    """The text shortened to 300 characters, and quoted if it contains control characters or line breaks."""
    return _short(text) if text.isprintable() else quoted(text)


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
