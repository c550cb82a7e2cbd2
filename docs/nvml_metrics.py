"""Writes the metrics of the nvml receiver, and its rules for `hw.status`, into its README. `make docs` runs it."""

import re
from pathlib import Path

from otel_zernel_receivers.nvml.points.metrics import METRICS, NvmlMetric
from otel_zernel_receivers.nvml.readings.status import RULES

README = Path(__file__).parent.parent / "receivers" / "otel_zernel_receivers" / "nvml" / "README.md"


def written_into(readme: str) -> str:
    """The README with current tables."""
    return _fenced(_fenced(readme, "metrics", _metrics()), "status", _rules())


def _fenced(text: str, name: str, table: str) -> str:
    fence = re.compile(rf"(<!-- {name}: [^>]*-->\n).*?(<!-- end of {name} -->)", re.DOTALL)
    return fence.sub(lambda found: f"{found[1]}\n{table}\n{found[2]}", text)


def _metrics() -> str:
    rows = [_row(metric) for metric in METRICS.values()]
    return "\n".join(
        ["| metric | unit | type | attributes | enabled | description |", "|---|---|---|---|---|---|", *rows, ""]
    )


def _row(metric: NvmlMetric) -> str:
    kind = metric.kind.replace("_", "-")
    attributes = ", ".join(metric.attributes)
    enabled = "yes" if metric.enabled else "no"
    return f"| {metric.name} | {metric.unit} | {kind} | {attributes} | {enabled} | {metric.description} |"


def _rules() -> str:
    rows = [f"| {state} | {condition} |" for state, condition, _ in RULES]
    first = "| failed | the GPU is lost, requires a reset, answers none of its queries, or had a fatal XID |"
    return "\n".join(["| hw.state | when |", "|---|---|", first, *rows, "| ok | otherwise |", ""])


def main() -> None:
    """Updates the README in place."""
    README.write_text(written_into(README.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main()
