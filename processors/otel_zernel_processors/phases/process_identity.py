"""The identity of a followed process."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """Identifies a process. A pid may be reused, but not with the same creation time."""

    host: str
    pid: int
    created: str

    @property
    def seed(self) -> str:
        """The text whose hashes are the ids of traces. A change of its form would change all ids."""
        return f"Identity(host={self.host!r}, pid={self.pid!r}, created={self.created!r})"
