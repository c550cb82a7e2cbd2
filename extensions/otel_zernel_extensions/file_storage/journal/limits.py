"""How a journal writes, and how much."""

from dataclasses import dataclass
from typing import Final

SEGMENT_SIZE: Final = 64 << 20
SMALLEST_SEGMENT: Final = 1 << 20
_SEGMENTS_IN_MAX_SIZE: Final = 16


@dataclass(frozen=True, slots=True)
class JournalLimits:
    """Settings of a journal."""

    fsync: bool = True
    max_size: int = 0
    """Bytes of all its files; 0 for no limit."""
    segment_size: int = SEGMENT_SIZE
    """Bytes of a file. Only a single larger record exceeds it."""

    @property
    def segment(self) -> int:
        """Bytes of a file. With `max_size`, it is smaller: one undelivered record keeps all of its file."""
        share = max(self.max_size // _SEGMENTS_IN_MAX_SIZE, SMALLEST_SEGMENT)
        return min(self.segment_size, share) if self.max_size else self.segment_size
