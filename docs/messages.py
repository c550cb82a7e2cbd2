"""The page of errors and warnings on the documentation site: `python -m docs.messages` prints it.

The messages come from the source, the advice from docs/messages.csv, which is written by hand. `make docs` adds new
messages there, removes old ones, and gives a reworded message the advice of the most similar old one. Mistakes in a
configuration or a command line are not in the page: each of them names its place and says what to write. Nor is a
message whose end says what to do.
"""

import csv
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from itertools import groupby
from pathlib import Path

from docs import fences
from docs.message_texts import Key, source_files
from docs.message_texts import messages as every_message

ADVICE = Path(__file__).with_name("messages.csv")

_OWN_ADVICE = {"configuration", "command line"}
"""Where a message needs no advice."""
_REMEDY = re.compile(
    r"[;:,] (?:or )?(?:add|allow|ask|check|choose|close|correct|create|give|grant|install|leave|let|lower|make|mount|"
    r"name|pip|raise|remove|replay|report|restart|run|see|select|send|set|start|stop|update|use|wait|write)\b"
)
"""What follows in a message is what to do."""
_SIMILAR = 0.7
"""The ratio of `difflib` from which on a new message counts as an old one reworded."""
_AND = "<br>"
"""Between messages of a component with the same advice."""
_HEAD = """# Errors and warnings

This page lists the errors and warnings of a collector that starts or runs, and what to do about each. `…` stands for a
value. Messages that say what to do are not here, and neither are mistakes in a configuration or on a command line: they
name their place. A message often ends with another one: `Dropped …: …` ends with the reason of the exporter.

| where | what it means |
|---|---|
| command line | printed by a command, which ends with status 1 or 2 |
| start | a component cannot start, so the collector ends with status 1 |
| doctor | printed by `otel-zernel doctor` and marked `!!` |
| disabled | a receiver, or the engine of tasks, cannot work now; it logs a warning, reports the problem in health, and tries again |
| retried | an export failed; logged after `Export failed; retrying in … s` |
| kept | the server takes no data until somebody corrects a setting; logged after `The server does not take the data, which are kept` |
| dropped | an export failed permanently; logged after `Dropped`, and counted by `otelcol_exporter_send_failed_*` |
| refused | a queue is full or memory is short; the receiver offers the batch again |
| warning, error | a line of the log with that level |
| reason | follows another message, such as `Cannot probe …: …` |

"""  # noqa: E501


def messages() -> dict[Key, str]:
    """The messages of the page, and the places where a user reads them."""
    every = every_message(source_files())
    return {key: place for key, place in every.items() if place not in _OWN_ADVICE and not _REMEDY.search(key[1])}


def advice() -> dict[Key, str]:
    """The advice that is written by hand, by message."""
    with ADVICE.open(encoding="utf-8", newline="") as file:
        return {(row["component"], row["message"]): row["advice"] for row in csv.DictReader(file)}


def page() -> str:
    """The page of the site."""
    return _HEAD + "\n".join(_tables(messages(), advice()))


def inherited(known: Mapping[Key, str], current: Iterable[Key]) -> dict[Key, str]:
    """The advice on current messages. A new message gets that of a similar old message."""
    kept = {key: known[key] for key in current if key in known}
    for component, message in current:
        old = [text for folder, text in known if folder == component and (folder, text) not in kept]
        similar = get_close_matches(message, old, 1, _SIMILAR)
        if similar and (component, message) not in kept:
            kept[component, message] = known[component, similar[0]]
    return kept


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


def update() -> int:
    """Rewrites the advice. Lists removed messages, and advice to check or to write. Returns 1 if advice is missing."""
    places, old = messages(), advice()
    known = inherited(old, places)
    with ADVICE.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(["component", "message", "advice"])
        rows.writerows((*key, known.get(key, "")) for key in sorted(places))
    missing = [key for key in places if not known.get(key)]
    check = [key for key in places if key not in old and known.get(key)]
    work = {"removed": old.keys() - places.keys(), "check the advice": check, "write the advice": missing}
    for verb, keys in work.items():
        sys.stdout.writelines(f"{verb}: {component}: {message}\n" for component, message in sorted(keys))
    return 1 if missing else 0


if __name__ == "__main__":
    if sys.argv[1:] == ["--update"]:
        sys.exit(update())
    sys.stdout.write(page())
