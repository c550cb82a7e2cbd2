"""What the output can show: its width, colours, and characters beyond ASCII."""

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self, TextIO

_PIPED = 100
"""Columns of text that is not for a terminal."""
_NARROWEST = 32
_WIDEST = 120
"""Columns. Longer lines are hard to read."""


@dataclass(frozen=True, slots=True)
class Terminal:
    """The properties of an output."""

    width: int = _PIPED
    is_coloured: bool = False
    is_unicode: bool = True

    @classmethod
    def of(cls, stream: TextIO, environ: Mapping[str, str] = os.environ) -> Self:
        """Those of a stream. A stream that is no terminal gets plain text."""
        is_terminal = stream.isatty()
        columns = shutil.get_terminal_size((_PIPED, 24)).columns if is_terminal or environ.get("COLUMNS") else _PIPED
        dumb = environ.get("TERM", "") in ("", "dumb")
        unicode = (stream.encoding or "").lower().replace("-", "").startswith("utf")
        return cls(
            max(_NARROWEST, min(columns, _WIDEST)), is_terminal and not dumb and not environ.get("NO_COLOR"), unicode
        )

    def plain(self) -> Self:
        """The same without colours."""
        return replace(self, is_coloured=False)

    def coloured(self, text: str, code: str) -> str:
        """The text in a colour or style, if the output has them."""
        return f"\x1b[{code}m{text}\x1b[0m" if self.is_coloured and text else text

    def encodable(self, text: str) -> str:
        """The text, without characters that the output does not have."""
        if self.is_unicode:
            return text
        return text.replace("…", "...").replace("·", "-").encode("ascii", "backslashreplace").decode()

    def bar(self, share: float, width: int) -> str:
        """A bar of at most `width` columns, as long as the share (0 to 1). A share above 0 is visible."""
        if not self.is_unicode:
            return "#" * max(round(share * width), 1 if share > 0 else 0)
        eighths = max(round(share * width * 8), 1 if share > 0 else 0)
        return "█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()
