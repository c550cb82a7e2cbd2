"""Writes the rules of the nvml receiver for `hw.status` into its README. `make docs` runs it."""

import re
from pathlib import Path

from otel_zernel_receivers.nvml.readings.status import RULES

README = Path(__file__).parent.parent / "receivers" / "otel_zernel_receivers" / "nvml" / "README.md"
FENCE = re.compile(r"(<!-- status: [^>]*-->\n).*?(<!-- end of status -->)", re.DOTALL)


def written_into(readme: str) -> str:
    """The README with a current table."""
    return FENCE.sub(lambda fence: f"{fence[1]}\n{_rules()}\n{fence[2]}", readme)


def _rules() -> str:
    rows = [f"| {state} | {condition} |" for state, condition, _ in RULES]
    first = "| failed | the GPU is lost, requires a reset, answers none of its queries, or had a fatal XID |"
    return "\n".join(["| hw.state | when |", "|---|---|", first, *rows, "| ok | otherwise |", ""])


def main() -> None:
    """Updates the README in place."""
    README.write_text(written_into(README.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main()
