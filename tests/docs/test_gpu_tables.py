"""The READMEs have the current tables of GPU names and states."""

import pytest

from docs.fences import written_into
from docs.gpu_tables import TABLES


@pytest.mark.parametrize("name", TABLES)
def test_the_table_in_the_readme_is_current(name: str) -> None:
    readme, content = TABLES[name]
    text = readme.read_text("utf-8")
    assert content() in text, "run `make docs`"
    assert written_into(text, name, content()) == text, "run `make docs`"
