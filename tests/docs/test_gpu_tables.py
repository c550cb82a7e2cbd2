"""The READMEs have places for the tables of GPU names and states, which the site fills."""

import pytest

from docs.gpu_tables import TABLES, filled


@pytest.mark.parametrize("name", TABLES)
def test_the_site_shows_the_table_in_its_readme(name: str) -> None:
    readme, content = TABLES[name]
    text = readme.read_text("utf-8")
    assert content() not in text
    assert content() in filled(readme, text)
