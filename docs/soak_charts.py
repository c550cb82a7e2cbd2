"""Writes the charts of docs/soak.md from the tables that `make soak` leaves in docs/soak. `make docs` runs it."""

import csv
import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).parent
FENCE = re.compile(r"(<!-- chart: (\w+)\.csv (\w+)[^>]*-->\n).*?(<!-- end of chart -->)", re.DOTALL)
MOST_POINTS = 60
"""Mermaid draws no more without overlapping labels."""


def written_into(text: str, folder: Path) -> str:
    """The text with its charts. `<!-- chart: hour.csv rss_mib -->` is one of a column over the column `seconds`."""
    return FENCE.sub(lambda fence: f"{fence[1]}{_chart(folder / f'{fence[2]}.csv', fence[3])}{fence[4]}", text)


def _chart(file: Path, column: str) -> str:
    rows = _thinned(list(csv.DictReader(file.read_text("utf-8").splitlines())))
    seconds = [float(row["seconds"]) for row in rows]
    values = [float(row[column]) for row in rows]
    if column == "cpu_seconds":  # it is cumulative
        spans = zip(pairwise(values), pairwise(seconds), strict=True)
        values = [100 * (b - a) / (end - start) for (a, b), (start, end) in spans]
        seconds = seconds[1:]
    title = {"rss_mib": "Resident memory (MiB)", "cpu_seconds": "CPU time (% of a CPU)"}[column]
    return "\n".join(
        [
            "```mermaid",
            "xychart-beta",
            f'  x-axis "seconds" {seconds[0]:.0f} --> {seconds[-1]:.0f}',
            f'  y-axis "{title}" 0 --> {max(values) * 1.2:.0f}',
            f"  line [{', '.join(f'{value:.1f}' for value in values)}]",
            "```",
            "",
        ]
    )


def _thinned(rows: Sequence[dict[str, str]]) -> Sequence[dict[str, str]]:
    return rows[:: -(-len(rows) // MOST_POINTS)]


def main() -> None:
    """Updates docs/soak.md in place."""
    document = ROOT / "soak.md"
    document.write_text(written_into(document.read_text("utf-8"), ROOT / "soak"), "utf-8")


if __name__ == "__main__":
    main()
