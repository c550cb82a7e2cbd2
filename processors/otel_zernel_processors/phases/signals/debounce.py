"""Keeps a state stable: a new state replaces the old one only after several equal values in a row."""


class Debounce:
    """A state that ignores short changes."""

    def __init__(self, stability: int, state: str) -> None:
        """A new state needs `stability` equal values in a row; 0 or 1: the first value is enough."""
        self.state = state
        self._stability = stability
        self._candidate = state
        self._count = 0

    def update(self, value: str) -> bool:
        """Adds a value; returns whether the state changed."""
        self._count = self._count + 1 if value == self._candidate else 1
        self._candidate = value
        if value == self.state or self._count < self._stability:
            return False
        self.state = value
        return True
