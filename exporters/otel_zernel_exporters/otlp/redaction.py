"""URLs as messages show them: without the parts in which tokens are."""

from urllib.parse import urlsplit, urlunsplit

from otel_zernel.text import REDACTED

_SHORTEST_SECRET = 4
"""Characters. A shorter query is no secret, and replacing it would garble the text around it."""


def shown(url: str) -> str:
    """The URL without its user, password, query and fragment, which may be secret."""
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
