"""Who is well and who is not: what components report and `health_check` shows."""

import time
from dataclasses import dataclass, field


@dataclass(slots=True)
class Health:
    """The collector's state. A component with an entry in `problems` has trouble that it may get over by itself."""

    up_since: float | None = None
    """Unix seconds since when everything runs; None while starting and stopping."""

    problems: dict[str, str] = field(default_factory=dict)
    """One sentence for each component (`receivers::csv`) that has trouble."""

    def report(self, component: str, problem: str | None) -> None:
        """Sets a component's trouble, or clears it with None."""
        if problem is None:
            self.problems.pop(component, None)
        else:
            self.problems[component] = problem

    def available(self) -> None:
        self.up_since = time.time()

    def unavailable(self) -> None:
        self.up_since = None
