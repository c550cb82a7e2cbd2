"""The collector's state: components report problems, and the `health_check` extension shows them."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class Health:
    """Whether the collector runs, and the problems that components may recover from by themselves."""

    up_since: float | None = None
    """Unix time in s since which every component runs; None while the collector starts or stops."""

    problems: dict[str, str] = field(default_factory=dict)
    """One sentence for each component with a problem, by path (`receivers::csv`)."""

    def report(self, component: str, problem: str | None) -> None:
        """Sets the problem of a component; None clears it."""
        if problem is None:
            self.problems.pop(component, None)
        else:
            self.problems[component] = problem

    def available(self, now_ns: int) -> None:
        """Every component runs since `now_ns` (wall clock, ns)."""
        self.up_since = now_ns / 1e9

    def unavailable(self) -> None:
        """The collector stops."""
        self.up_since = None
