"""Follows files that grow, are truncated, and are rotated."""

import math
import os
from collections.abc import Callable, Iterator, KeysView, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Generic, Protocol, TypeVar

from otel_zernel_libraries.files.changes import FolderChanges
from otel_zernel_libraries.files.growing import GrowingFile, key_of
from otel_zernel_libraries.files.listing import Listing, list_files
from otel_zernel_libraries.files.positions import Position, Positions
from otel_zernel_libraries.files.sources import Problems, Unreadable, reading_errors

POLL = 0.2
"""Seconds between two looks at files that grow."""
_HOT = 10.0
"""Seconds after its last byte for which a file is looked at every `POLL` s. All others wait for the next listing."""
_SHARE = 0.02
"""The share of one core that listings may take: with 10,000 files, they are some seconds apart."""
_SHARE_IF_NEW = 0.1
"""The same while the kernel reports new files."""
_LONGEST = 10.0
"""The maximum number of seconds between two listings."""


class Piece(Protocol):
    """A part of a file."""

    @property
    def end(self) -> int:
        """The offset in the file after the part."""

    @property
    def resume(self) -> Mapping[str, Any]:
        """What the reader of the file needs to go on after the part, as JSON."""


PieceT = TypeVar("PieceT", bound=Piece)
Stream = Iterator[PieceT | None]
"""The parts of one file; None while there are no new ones. May raise `Unreadable`."""
OpenStream = Callable[[GrowingFile, Mapping[str, Any] | None], Stream[PieceT]]
"""Reads a file from its offset. The mapping is the `resume` of the part before; None if there is none.

If the offset is 0 although there is such a part, the file was truncated since.
"""


@dataclass(frozen=True, slots=True)
class Followed(Generic[PieceT]):
    """A part of a followed file."""

    piece: PieceT
    name: str
    """The file's name when it was opened."""
    key: str
    """The file's identity, for `Positions.commit`."""
    position: Position
    """The position after the part."""


class _File(Generic[PieceT]):
    """One followed file with its stream."""

    def __init__(self, file: GrowingFile, open_stream: OpenStream[PieceT], resume: Mapping[str, Any] | None) -> None:
        self.file = file
        self.exists = True
        self.hot_until = 0.0
        self.has_more = True
        """Whether the stream had a part at the last call, so that it may have another."""
        self._open_stream = open_stream
        self._resume = resume
        self._stream = open_stream(file, resume)

    def next(self) -> Followed[PieceT] | None:
        """The next part. Raises `Unreadable` once; then there is none until the file is truncated."""
        self.has_more = False
        with reading_errors(self.file.name):
            piece = next(self._stream, None)
            if piece is None and self.file.truncated:
                piece = self._restart()
            if piece is None:
                return None
            self.has_more = True
            self._resume = piece.resume
            end = min(piece.end, self.file.offset)
            return Followed(
                piece, self.file.name, self.file.key, Position(end, self.file.fingerprint(end), piece.resume)
            )

    def _restart(self) -> PieceT | None:
        """Goes back to the beginning of a truncated file. Returns the unfinished line before the truncation, if any."""
        self.file.end()
        unfinished = next(self._stream, None)
        self.file.rewind()
        self._stream = self._open_stream(self.file, unfinished.resume if unfinished else self._resume)
        return unfinished


class Follower(Generic[PieceT]):
    """Follows all files that match paths and globs, also those that are created later.

    A file is recognised by its device, inode and content, whatever its name. If it comes back, it goes on where it was
    left: a folder may be renamed away or fail for a while. Its methods block.
    """

    def __init__(
        self,
        patterns: Sequence[str],
        open_stream: OpenStream[PieceT],
        positions: Positions,
        problems: Problems,
        monotonic: Callable[[], float],
        changes: FolderChanges | None = None,
        *,
        exclude: Sequence[str] = (),
        from_end: bool = False,
    ) -> None:
        """`changes` shortens the wait for files that were idle.

        `from_end`: files that exist at the start are read from their end, unless they have a position.
        """
        self._patterns = patterns
        self._exclude = exclude
        self._open_stream = open_stream
        self._positions = positions
        self._problems = problems
        self._monotonic = monotonic
        self._changes = changes
        self._from_end = from_end
        self._files: dict[str, _File[PieceT]] = {}
        self._by_name: dict[str, _File[PieceT]] = {}
        self._former_names: frozenset[str] = frozenset()
        """The names in the listing before the last one."""
        self._awake: dict[str, _File[PieceT]] = {}
        """Those that are looked at between two listings."""
        self._next_listing = self._earliest_listing = -math.inf
        self._listed_with_problems: set[str] = set()

    @property
    def open_keys(self) -> KeysView[str]:
        """The identities of the files that are open."""
        return self._files.keys()

    def pieces(self) -> Iterator[Followed[PieceT] | None]:
        """The parts of the files, in turn; None if no file has a new one. Never ends."""
        try:
            while True:
                busy = False
                for key, file in self._due():
                    if piece := self._next(file):
                        busy = True
                        yield piece
                    elif file.file.is_finished(self._monotonic(), exists=file.exists):
                        self._close(key)
                if not busy:
                    yield None
        finally:
            for file in self._files.values():
                file.file.close()
            if self._changes:
                self._changes.close()

    def _due(self) -> list[tuple[str, _File[PieceT]]]:
        """The files that may have new bytes, and those that are gone."""
        now = self._monotonic()
        self._use_hints(now)
        grown = self._list(now) if now >= self._next_listing else set()
        self._awake |= {key: self._files[key] for key in grown}
        due = [(key, file) for key, file in self._awake.items() if key in grown or _is_due(file, now)]
        for _, file in due:
            file.hot_until = now + _HOT
        self._awake = {key: file for key, file in self._awake.items() if now < file.hot_until}
        return due

    def _use_hints(self, now: float) -> None:
        """Looks at changed files now, and lists soon if there are new ones."""
        grown, new = self._changes.changed() if self._changes else (set(), set())
        for name in grown & self._by_name.keys():
            file = self._by_name[name]
            file.hot_until = now + _HOT
            self._awake[file.file.key] = file
        for name, now_called in self._changes.gone.items() if self._changes else ():
            if name not in self._by_name and name not in self._former_names and self._may_follow(name):
                self._follow_gone(name, now_called, now)
        if any(map(self._may_follow, (grown - self._by_name.keys()) | new)):
            self._next_listing = min(self._next_listing, self._earliest_listing)

    def _follow_gone(self, name: str, now_called: str, now: float) -> None:
        """Opens a file that came and was renamed between two listings, by its new name."""
        if not now_called:
            self._problems.warn(f"gone {name}", f"{name} came and went before it could be read: its data is lost")
        elif not self._may_follow(now_called):  # else the next listing finds it
            self._open(now_called, now)

    def _may_follow(self, name: str) -> bool:
        """Whether a name may match the patterns. An empty name may be any."""
        if any(fnmatchcase(name, pattern) for pattern in self._exclude):
            return False
        return not name or any(fnmatchcase(name, pattern.replace("**/", "*")) for pattern in self._patterns)

    def _list(self, now: float) -> set[str]:
        """Opens new files, and returns the keys of files that have changed."""
        if self._changes:  # before listing: a file that is created meanwhile is then hinted at
            self._changes.watch({os.path.dirname(name) for name in (*self._patterns, *self._by_name)})  # noqa: PTH120
        listing = list_files(self._patterns, self._exclude)
        self._report(listing)
        grown, listed = set(), set()
        for name, status in listing.files.items():
            key = key_of(status)
            listed.add(key)
            if key not in self._files:
                self._open(name, now)
            if (file := self._files.get(key)) and file.file.has_grown(status):
                grown.add(key)
        for key, file in self._files.items():
            file.exists = key in listed or (bool(listing.problems) and not file.file.removed)
            if not file.exists:
                self._awake[key] = file
        self._from_end = False
        cost = self._monotonic() - now
        self._former_names = frozenset(self._by_name)
        self._by_name = {name: file for name in listing.files if (file := self._files.get(key_of(listing.files[name])))}
        self._next_listing = now + min(max(POLL, cost / _SHARE), _LONGEST)
        self._earliest_listing = now + max(POLL, cost / _SHARE_IF_NEW)
        return grown

    def _report(self, listing: Listing) -> None:
        for subject, problem in listing.problems.items():
            self._problems.warn(subject, str(problem))
        for subject in self._listed_with_problems - listing.problems.keys():
            self._problems.clear(subject)
        self._listed_with_problems = set(listing.problems)

    def _open(self, name: str, now: float) -> None:
        try:
            with reading_errors(name):
                file = GrowingFile(name)
        except Unreadable as problem:
            self._problems.warn(f"opening {name}", str(problem))
            return
        self._problems.clear(f"opening {name}")
        position = self._positions.get(file.key)
        if position and not file.go_on(position):
            position = None
        elif self._from_end and not position:
            file.skip_to_end()
        self._files[file.key] = self._awake[file.key] = _File(
            file, self._open_stream, position.resume if position else None
        )

    def _next(self, file: _File[PieceT]) -> Followed[PieceT] | None:
        name = file.file.name
        try:
            if piece := file.next():
                self._problems.clear(name)
            return piece
        except Unreadable as problem:
            self._problems.warn(name, str(problem))
            if isinstance(problem.__cause__, OSError):  # it is opened again, and goes on at its position
                self._close(file.file.key)
            return None

    def _close(self, key: str) -> None:
        self._awake.pop(key, None)
        if file := self._files.pop(key, None):
            if file.file.removed:
                self._positions.remove(key)
            file.file.close()


def _is_due(file: _File[PieceT], now: float) -> bool:
    return file.has_more or not file.exists or (now < file.hot_until and file.file.has_grown())
