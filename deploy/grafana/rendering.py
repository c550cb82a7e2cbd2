"""Grafana's JSON of a dashboard (schema version 39, Grafana 10 and newer)."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from deploy.grafana.panels import Dashboard, Panel, Query, Row, Variable
from otel_zernel_libraries.training.words import DETAIL_NAMES, PHASE_WORDS, VERDICT_WORDS

COLUMNS = 24
HEIGHTS = {"stat": 4, "timeseries": 8, "table": 8, "traces": 8}
PROMETHEUS = {"type": "prometheus", "uid": "${datasource}"}
TEMPO = {"type": "tempo", "uid": "${tempo}"}
TAG = "otel-zernel"

_CURVE = {"lineWidth": 1, "fillOpacity": 8, "showPoints": "never"}
_OPTIONS: dict[str, dict[str, Any]] = {
    "timeseries": {
        "legend": {"displayMode": "list", "placement": "bottom"},
        "tooltip": {"mode": "multi", "sort": "desc"},
    },
    "stat": {"reduceOptions": {"calcs": ["lastNotNull"]}, "colorMode": "value", "graphMode": "area"},
    "table": {"showHeader": True},
    "traces": {"showHeader": True},
}


def text_of(dashboard: Dashboard) -> str:
    """The file that Grafana reads."""
    return json.dumps(_dashboard(dashboard), indent=2) + "\n"


def _dashboard(dashboard: Dashboard) -> dict[str, Any]:
    return {
        "id": None,
        "uid": dashboard.uid,
        "title": dashboard.title,
        "description": dashboard.description,
        "tags": [TAG],
        "schemaVersion": 39,
        "editable": True,
        "graphTooltip": 1,  # one cross hair over all panels
        "refresh": "10s",
        "time": {"from": "now-30m", "to": "now"},
        "links": [{"type": "dashboards", "title": "otel-zernel", "tags": [TAG], "asDropdown": True, "keepTime": True}],
        "templating": {"list": list(_variables(dashboard))},
        "panels": list(_panels(dashboard.rows)),
    }


def _variables(dashboard: Dashboard) -> Iterator[dict[str, Any]]:
    yield {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"}
    if any(panel.kind == "traces" for row in dashboard.rows for panel in row.panels):
        yield {"name": "tempo", "label": "Tempo", "type": "datasource", "query": "tempo"}
    yield from map(_variable, dashboard.variables)


def _variable(variable: Variable) -> dict[str, Any]:
    query = f"label_values({variable.metric}, {variable.label})"
    several = {"multi": True, "includeAll": True, "current": {"text": ["All"], "value": ["$__all"]}}
    return {
        "name": variable.name,
        "label": variable.title,
        "type": "query",
        "datasource": PROMETHEUS,
        "query": {"query": query, "refId": variable.name},
        "definition": query,
        "refresh": 2,  # when the time range changes
        "sort": 7,  # by name, with numbers in their order
        **(several if variable.several else {}),
    }


def _panels(rows: Sequence[Row]) -> Iterator[dict[str, Any]]:
    """Each row is a heading of the full width, and then its panels from left to right."""
    number, top = 0, 0
    for row in rows:
        number += 1
        yield {
            "id": number,
            "type": "row",
            "title": row.title,
            "collapsed": False,
            "panels": [],
            "gridPos": {"x": 0, "y": top, "w": COLUMNS, "h": 1},
        }
        top += 1
        left = height = 0
        for panel in row.panels:
            if left + panel.width > COLUMNS:
                left, top, height = 0, top + height, 0
            number += 1
            place = {"x": left, "y": top, "w": panel.width, "h": HEIGHTS[panel.kind]}
            yield {"id": number, "gridPos": place, **_panel(panel)}
            left, height = left + panel.width, max(height, HEIGHTS[panel.kind])
        top += height


def _panel(panel: Panel) -> dict[str, Any]:
    source = TEMPO if panel.kind == "traces" else PROMETHEUS
    defaults: dict[str, Any] = {"unit": panel.unit}
    if panel.no_value:
        defaults["noValue"] = panel.no_value
    if panel.kind == "timeseries":
        stacking = {"mode": "normal" if panel.stacked else "none", "group": "A"}
        defaults["custom"] = {**_CURVE, "fillOpacity": 60 if panel.stacked else 8, "stacking": stacking}
    made = {
        "type": "table" if panel.kind == "traces" else panel.kind,
        "title": panel.title,
        "description": panel.description,
        "datasource": source,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": _OPTIONS[panel.kind],
        "targets": [_target(panel, query, chr(ord("A") + at)) for at, query in enumerate(panel.queries)],
    }
    if panel.kind == "table":
        made["transformations"] = [{"id": "organize", "options": {"excludeByName": {"Time": True}}}]
        if any("zernel_verdict" in query.expression or "job_verdict" in query.expression for query in panel.queries):
            names = {verdict: {"text": words.name} for verdict, words in VERDICT_WORDS.items()}
            defaults["mappings"] = [{"type": "value", "options": names}]
    else:
        renamed = list(_renamed(" ".join(query.legend for query in panel.queries)))
        made |= {"transformations": renamed} if renamed else {}
    return made


def _renamed(legend: str) -> Iterator[dict[str, Any]]:
    """Puts words in place of the phases and their details in the names of series."""
    if "{{zernel_phase}}" in legend:
        for phase, words in PHASE_WORDS.items():
            yield _renaming(rf"(^|.* ){phase}($| .*)", f"$1{words.name}$2")
    if "{{zernel_phase_detail}}" in legend:
        for detail, name in DETAIL_NAMES.items():
            yield _renaming(rf"(.* / ){detail}$", f"$1{name}")


def _renaming(regex: str, pattern: str) -> dict[str, Any]:
    return {"id": "renameByRegex", "options": {"regex": regex, "renamePattern": pattern}}


def _target(panel: Panel, query: Query, name: str) -> dict[str, Any]:
    if panel.kind == "traces":
        search = {"queryType": "traceql", "query": query.expression, "limit": 20, "tableType": "traces"}
        return {"refId": name, "datasource": TEMPO, **search}
    shape: dict[str, Any] = {"instant": True, "format": "table"} if panel.kind == "table" else {"range": True}
    if panel.exemplars:
        shape["exemplar"] = True
    legend = query.legend or "__auto"
    return {"refId": name, "datasource": PROMETHEUS, "expr": query.expression, "legendFormat": legend, **shape}
