"""The page of metrics on the documentation site: `python -m docs.metrics` prints it.

Each component lists its metrics in a module `declared`. This module finds all of them.
"""

import importlib
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from docs.fences import table
from otel_zernel.component.declaration import DeclaredMetric

ROOT = Path(__file__).parent.parent
ROOTS = (ROOT, *(ROOT / kind for kind in ("receivers", "processors", "exporters", "extensions", "commands")))

_HEAD = """# Metrics

Names are those of OpenTelemetry. On a Prometheus page, dots become underscores, and units and `_total` are added
([prometheus](../exporters/otel_zernel_exporters/prometheus/README.md)). On the page of own metrics (`:8888`), names
have no suffixes. A sum is monotonic, an up-down sum is not. The README of each component has the attributes of the
resource, such as `host.name`.

The other receivers keep the names of their data: [otlp](../receivers/otel_zernel_receivers/otlp/README.md),
[otlp_json_file](../receivers/otel_zernel_receivers/otlp_json_file/README.md), and
[csv](../receivers/otel_zernel_receivers/csv/README.md) with columns of your own. The processor
[percentiles](../processors/otel_zernel_processors/percentiles/README.md) names its results after its inputs.
"""


def tables() -> Iterator[tuple[str, Mapping[str, DeclaredMetric]]]:
    """The folder of each component that has a table, such as `receivers/csv`, or `collector`; and the metrics."""
    for root in ROOTS:
        for path in sorted(root.glob("otel_zernel*/**/declared.py")):
            module = ".".join(path.relative_to(root).with_suffix("").parts)
            yield folder_of(path), importlib.import_module(module).METRICS


def folder_of(path: Path) -> str:
    """`receivers/csv` for a file of a component, `collector` for one of the core."""
    kind, _, component, *_ = path.relative_to(ROOT).parts
    return "collector" if kind == "otel_zernel" else f"{kind}/{component}"


def page() -> str:
    """The document."""
    every = dict(tables())
    own = {name: [metric for metric in metrics.values() if metric.own] for name, metrics in every.items()}
    data = {name: [metric for metric in metrics.values() if not metric.own] for name, metrics in every.items()}
    parts = [_HEAD, "\n## In the pipelines\n"]
    parts += [_section(name, metrics) for name, metrics in sorted(data.items()) if metrics]
    parts += [
        "\n## About the collector itself\n",
        "\nThese are on <http://localhost:8888/metrics>: see [reference.md](reference.md).\n",
    ]
    parts += [_section(name, metrics) for name, metrics in sorted(own.items()) if metrics]
    return "".join(parts)


def _section(name: str, metrics: list[DeclaredMetric]) -> str:
    """A table. What holds for all or for most of its metrics is said once above it."""
    shared = metrics[0].attributes if len(metrics) > 2 else ()
    of_all = [one for one in shared if all(one in metric.attributes for metric in metrics)]
    (usual, number), *_ = Counter(metric.when for metric in metrics).most_common(1)
    usual = usual if len(metrics) <= 2 * number > 4 else ""
    notes = [f"Every point has {_names(of_all)}."] if of_all else []
    notes += [f"Without another condition, a metric appears {usual}."] if usual else []
    rows = [_row(metric, of_all, usual) for metric in metrics]
    return "\n".join(
        [
            f"\n### {name}\n",
            *([" ".join(notes), ""] if notes else []),
            table(["metric", "type", "unit", "attributes", "description", "appears"], rows),
        ]
    )


def _row(metric: DeclaredMetric, of_all: Sequence[str], usual: str) -> tuple[str, ...]:
    kind = {"up_down": "up-down sum"}.get(metric.kind, metric.kind)
    attributes = _names(name for name in metric.attributes if name not in of_all)
    when = metric.when.replace(f", and {usual}", "") if usual else metric.when
    when = "" if when == usual else when
    return f"`{metric.name}`", kind, metric.unit, attributes, metric.description, when


def _names(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


if __name__ == "__main__":
    sys.stdout.write(page())
