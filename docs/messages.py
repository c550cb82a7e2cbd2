"""Writes the table of errors and warnings into docs/messages.md: `make docs`.

The messages come from the source; the advice is written by hand into the page, and stays. A reworded message inherits
the advice of the most similar old message. Mistakes in a configuration or a command line are not in the page: each of
them names its place and says what to write. Nor is a message whose end says what to do.
"""

import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from itertools import groupby
from pathlib import Path

from docs import fences
from docs.message_texts import Key, source_files
from docs.message_texts import messages as every_message

PAGE = Path(__file__).with_name("messages.md")

_OWN_ADVICE = {"configuration", "command line"}
"""Where a message needs no advice."""
_REMEDY = re.compile(
    r"[;:,] (?:or )?(?:add|allow|ask|check|choose|close|correct|create|give|grant|install|leave|let|lower|make|mount|"
    r"name|pip|raise|remove|replay|report|restart|run|see|select|send|set|start|stop|update|use|wait|write)\b"
)
"""What follows in a message is what to do."""
_SIMILAR = 0.7
"""The ratio of `difflib` from which on a new message counts as an old one reworded."""
_HEADING = re.compile(r"^## (\S+)$", re.MULTILINE)
_AND = "<br>"
"""Between messages of a component with the same advice."""
_ROW = re.compile(r"^\| (`.*`) \| [a-z, ]+ \| (.*?) ?\|$", re.MULTILINE)


def messages() -> dict[Key, str]:
    """The messages of the page, and the places where a user reads them."""
    every = every_message(source_files())
    return {key: place for key, place in every.items() if place not in _OWN_ADVICE and not _REMEDY.search(key[1])}


def advice(page: str) -> dict[Key, str]:
    """The advice in the page, by message."""
    found = {}
    _, *sections = _HEADING.split(page)
    for component, rows in zip(sections[::2], sections[1::2], strict=True):
        for cell, text in _ROW.findall(rows):
            found.update({(component, _plain(message)): text for message in cell.split(_AND)})
    return found


def written_into(page: str, places: Mapping[Key, str]) -> str:
    """The page with these messages, the places where a user reads them, and its own advice."""
    known = _inherited(advice(page), places)
    return fences.written_into(page, "messages", "\n".join(_tables(places, known)))


def _inherited(known: Mapping[Key, str], current: Iterable[Key]) -> dict[Key, str]:
    """The advice on current messages. A new message gets that of a similar old message."""
    found = {key: known[key] for key in current if key in known}
    for component, message in current:
        old = [text for folder, text in known if folder == component and (folder, text) not in found]
        similar = get_close_matches(message, old, 1, _SIMILAR)
        if similar and (component, message) not in found:
            found[component, message] = known[component, similar[0]]
    return found


def _tables(places: Mapping[Key, str], known: Mapping[Key, str]) -> Iterator[str]:
    for component, keys in groupby(sorted(places, key=lambda key: (key[0], places[key], key[1])), lambda key: key[0]):
        alike: dict[tuple[str, ...], list[str]] = {}
        for key in keys:
            text = known.get(key, "")
            alike.setdefault((places[key], text, "" if text else key[1]), []).append(_code(key[1]))
        rows = [(_AND.join(codes), place, text) for (place, text, _), codes in alike.items()]
        yield f"## {component}\n\n{fences.table(['message', 'where', 'what to do'], rows)}"


def _code(text: str) -> str:
    text = text.replace("|", r"\|")
    return f"`` {text} ``" if "`" in text else f"`{text}`"


def _plain(code: str) -> str:
    return (code[3:-3] if code.startswith("``") else code[1:-1]).replace(r"\|", "|")


def main() -> int:
    """Rewrites the page. Lists removed messages, and advice to check or to write. Returns 1 if advice is missing."""
    before, places = PAGE.read_text("utf-8"), messages()
    page = written_into(before, places)
    PAGE.write_text(page, "utf-8")
    known, old = advice(page), advice(before)
    missing = [key for key in places if not known[key]]
    inherited = [key for key in places if key not in old and known[key]]
    work = {"removed": old.keys() - places.keys(), "check the advice": inherited, "write the advice": missing}
    for verb, keys in work.items():
        sys.stdout.writelines(f"{verb}: {component}: {message}\n" for component, message in sorted(keys))
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
