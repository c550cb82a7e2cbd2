"""What the user has chosen to see, and how keys change it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

SORT_KEYS: Final = ("rank", "phase", "p50", "p99", "late", "rate", "data", "wait")
"""The columns to sort by. All but the first two begin with the largest value."""
INTERVALS: Final = (0.25, 0.5, 1.0, 2.0, 5.0, 10.0)
"""Seconds between two updates of the screen."""
_LONGEST_FILTER: Final = 64


@dataclass(slots=True)
class SortOrder:
    """One of the two keys to sort by."""

    key: str = "rank"
    is_reversed: bool = False

    @property
    def is_descending(self) -> bool:
        """Whether the largest value comes first."""
        return (self.key not in ("rank", "phase")) != self.is_reversed

    def advance(self) -> None:
        """Takes the next key."""
        self.key = SORT_KEYS[(SORT_KEYS.index(self.key) + 1) % len(SORT_KEYS)]
        self.is_reversed = False


@dataclass(slots=True)
class WatchView:
    """The choices of the user. `press` changes them."""

    interval: float = 1.0
    orders: tuple[SortOrder, SortOrder] = field(default_factory=lambda: (SortOrder(), SortOrder()))
    filter: str = ""
    is_typing: bool = False
    """Whether keys go into the filter."""
    selected: str = ""
    """The id of the chosen rank; empty or the id of one that has left: the first one."""
    job: str = ""
    """The id of the chosen job; empty or the id of one that has left: all jobs, or the only one."""
    page: Literal["jobs", "table", "rank", "help"] = "table"
    panels: Literal["all", "ranks", "gpus"] = "all"
    top: int = 0
    """The first row that the table shows."""
    is_frozen: bool = False
    has_quit: bool = False

    def press(self, key: str, shown: Sequence[str], page_rows: int = 10) -> None:
        """Applies a key. `shown` are the ids of the table's rows in their order, `page_rows` how many fit."""
        if key == "ctrl-c":
            self.has_quit = True
        elif self.is_typing:
            self._type(key)
        elif key in ("s", "S", "r", "R"):
            order = self.orders[key.isupper()]
            if key in "sS":
                order.advance()
            else:
                order.is_reversed = not order.is_reversed
        elif not self._switch(key, shown):
            self._move(key, shown, page_rows)

    def _switch(self, key: str, shown: Sequence[str]) -> bool:
        """Whether the key changes a mode."""
        if key == "q":
            self.has_quit = True
        elif key == " ":
            self.is_frozen = not self.is_frozen
        elif key in ("?", "h"):
            self.page = "table" if self.page == "help" else "help"
        elif key == "escape":
            self._leave()
        elif key == "/":
            self.page, self.is_typing = "jobs" if self.page == "jobs" else "table", True
        elif key == "enter" and self.page == "jobs":
            self._choose(shown)
        elif key == "enter":
            self.page = "table" if self.page != "table" else "rank"
        elif key == "g":
            following = {"all": "ranks", "ranks": "gpus", "gpus": "all"}
            self.panels, self.top = following[self.panels], 0  # type: ignore[assignment]  # one of the three
        elif key in ("+", "=", "-"):
            step = -1 if key == "-" else 1
            near = min(range(len(INTERVALS)), key=lambda at: abs(INTERVALS[at] - self.interval))
            self.interval = INTERVALS[min(max(near + step, 0), len(INTERVALS) - 1)]
        else:
            return False
        return True

    def _leave(self) -> None:
        """Escape: out of a page, else out of the filter, else out of the job."""
        if self.page not in ("table", "jobs"):
            self.page = "table"
        elif self.filter:
            self.filter = ""
        else:
            self.job = ""

    def _choose(self, shown: Sequence[str]) -> None:
        """Takes the selected job."""
        if shown:
            self.job = self.selected if self.selected in shown else shown[0]
            self.page = "table"
            self.selected = ""
            self.filter = ""
            self.top = 0

    def _type(self, key: str) -> None:
        if key == "enter":
            self.is_typing = False
        elif key == "escape":
            self.is_typing = False
            self.filter = ""
        elif key == "backspace":
            self.filter = self.filter[:-1]
        elif len(key) == 1 and key.isprintable():
            self.filter = (self.filter + key)[:_LONGEST_FILTER]

    def _move(self, key: str, shown: Sequence[str], page_rows: int) -> None:
        at = shown.index(self.selected) if self.selected in shown else 0
        moves = {
            "down": at + 1,
            "j": at + 1,
            "up": at - 1,
            "k": at - 1,
            "page down": at + page_rows,
            "page up": at - page_rows,
            "home": 0,
            "end": len(shown) - 1,
        }
        if key in moves and shown:
            self.selected = shown[min(max(moves[key], 0), len(shown) - 1)]
