"""The README's tables match the code."""

from docs.nvml_metrics import README, written_into


def test_the_tables_are_current() -> None:
    text = README.read_text("utf-8")
    assert written_into(text) == text
