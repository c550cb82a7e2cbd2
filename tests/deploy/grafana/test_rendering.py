"""The JSON of the dashboards: panels have places and ids of their own, and queries use variables that exist."""

import json
import re
from itertools import combinations
from typing import Any

import pytest

from deploy.grafana.boards import DASHBOARDS
from deploy.grafana.panels import Dashboard, Panel, Query, Row
from deploy.grafana.rendering import COLUMNS, text_of

BUILT_IN = {"__rate_interval"}
boards = pytest.mark.parametrize("board", DASHBOARDS, ids=lambda board: str(board.uid))


def rendered(board: Dashboard) -> dict[str, Any]:
    fields: dict[str, Any] = json.loads(text_of(board))
    return fields


def places(board: Dashboard) -> list[tuple[range, range]]:
    """The columns and the lines of each panel."""
    places = [panel["gridPos"] for panel in rendered(board)["panels"]]
    return [(range(at["x"], at["x"] + at["w"]), range(at["y"], at["y"] + at["h"])) for at in places]


def overlap(one: tuple[range, range], other: tuple[range, range]) -> bool:
    return all(set(first) & set(second) for first, second in zip(one, other, strict=True))


@boards
def test_no_panels_overlap_or_leave_the_grid(board: Dashboard) -> None:
    assert not any(overlap(one, other) for one, other in combinations(places(board), 2))
    assert all(columns.stop <= COLUMNS for columns, _ in places(board))


@boards
def test_ids_are_unique_and_titles_are_unique_within_a_row(board: Dashboard) -> None:
    ids = [panel["id"] for panel in rendered(board)["panels"]]
    assert len(set(ids)) == len(ids)
    for row in board.rows:
        titles = [panel.title for panel in row.panels]
        assert len(set(titles)) == len(titles), row.title


@boards
def test_every_variable_in_a_query_exists(board: Dashboard) -> None:
    made = rendered(board)
    names = {variable["name"] for variable in made["templating"]["list"]}
    used = set(re.findall(r"\$\{?([a-z_]\w*)", json.dumps(made["panels"]) + json.dumps(made["templating"])))
    assert used - names <= BUILT_IN | {"__all"}
    assert names <= used


def test_the_addresses_of_the_dashboards_are_unique() -> None:
    assert len({board.uid for board in DASHBOARDS}) == len(DASHBOARDS)


def test_a_panel_that_does_not_fit_begins_a_new_line() -> None:
    panels = [Panel(str(width), "s", [Query("up")], width=width) for width in (12, 8, 8)]
    first, second, third = places(Dashboard("u", "t", "", [], [Row("r", panels)]))[1:]
    assert (first[0], second[0], third[0]) == (range(12), range(12, 20), range(8))
    assert first[1] == second[1]
    assert third[1].start == first[1].stop


def test_a_panel_of_traces_asks_tempo_and_the_others_ask_prometheus() -> None:
    panels = [Panel("a", "s", [Query("{ }")], kind="traces"), Panel("b", "s", [Query("up")])]
    made = rendered(Dashboard("u", "t", "", [], [Row("r", panels)]))
    _, traces, metrics = made["panels"]
    assert (traces["datasource"]["type"], metrics["datasource"]["type"]) == ("tempo", "prometheus")
    assert (traces["targets"][0]["query"], metrics["targets"][0]["expr"]) == ("{ }", "up")
    assert {variable["name"] for variable in made["templating"]["list"]} == {"datasource", "tempo"}
