"""The generated parts of documents: between `<!-- NAME: written by ... -->` and `<!-- end of NAME -->`."""

import re
from collections.abc import Iterable, Sequence


def written_into(text: str, name: str, content: str) -> str:
    """The document with this content between the two comments of a name."""
    fence = re.compile(rf"(<!-- {name}: [^>]*-->\n).*?(<!-- end of {name} -->)", re.DOTALL)
    return fence.sub(lambda found: f"{found[1]}\n{content}\n{found[2]}", text)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of Markdown."""
    lines = [f"| {' | '.join(cells)} |" for cells in (head, *rows)]
    return "\n".join([lines[0], f"|{'---|' * len(head)}", *lines[1:], ""])
