"""Writes the fields of nvidia-smi and their metrics into the csv receiver's README. `make docs` runs it."""

import re
from itertools import groupby
from pathlib import Path

from otel_zernel_libraries.gpu_names.nvidia_smi import FIELDS, Field

README = Path(__file__).parent.parent / "receivers" / "otel_zernel_receivers" / "csv" / "README.md"
FENCE = re.compile(r"(<!-- nvidia-smi: [^>]*-->\n).*?(<!-- end of nvidia-smi -->)", re.DOTALL)


def written_into(readme: str) -> str:
    """The README with a current table."""
    return FENCE.sub(lambda fence: f"{fence[1]}\n{table()}\n{fence[2]}", readme)


def table() -> str:
    """A row for each metric: the fields, the unit, and the values of the attributes."""
    ordered = list(FIELDS.values())
    metrics = dict.fromkeys(field.measure.descriptor.name for field in ordered)
    rows = [_row(name, [field for field in ordered if field.measure.descriptor.name == name]) for name in metrics]
    return "\n".join(["| fields of --query-gpu | metric | unit | attributes |", "|---|---|---|---|", *rows, ""])


def _row(name: str, fields: list[Field]) -> str:
    attributes = dict.fromkeys(attribute for field in fields for attribute in field.measure.attributes)
    columns = ", ".join(f"`{column}`" for column in _joined([field.column for field in fields]))
    return f"| {columns} | {name} | {fields[0].measure.descriptor.unit} | {', '.join(attributes)} |"


def _joined(columns: list[str]) -> list[str]:
    """The columns; those that differ in the last part as one: `utilization.{gpu,encoder}`."""
    parts = [column.rpartition(".") for column in dict.fromkeys(columns)]
    joined = []
    for prefix, group in groupby(parts, key=lambda part: part[0]):
        last = [part[2] for part in group]
        joined.append(f"{prefix}.{{{','.join(last)}}}" if len(last) > 1 else f"{prefix}.{last[0]}".lstrip("."))
    return joined


def main() -> None:
    """Updates the README in place."""
    README.write_text(written_into(README.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main()
