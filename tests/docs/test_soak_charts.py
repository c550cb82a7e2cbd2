"""The charts in docs/soak.md show the tables beside it."""

from docs.soak_charts import FENCE, ROOT, written_into


def test_the_charts_are_those_of_the_tables() -> None:
    text = (ROOT / "soak.md").read_text("utf-8")
    assert FENCE.search(text)
    assert written_into(text, ROOT / "soak") == text, "run `python -m docs.soak_charts`"
