"""Keeps a state steady: a new one has to win several votes in a row."""


class Vote:
    """A state, and how often in a row another has been seen."""

    def __init__(self, stability: int, state: str) -> None:
        """A new state is taken after `stability` equal votes in a row; 0 or 1: at once."""
        self.state = state
        self._stability = stability
        self._candidate = state
        self._votes = 0

    def cast(self, state: str) -> bool:
        """Counts a vote; whether the state is a new one now."""
        self._votes = self._votes + 1 if state == self._candidate else 1
        self._candidate = state
        if state == self.state or self._votes < self._stability:
            return False
        self.state = state
        return True
