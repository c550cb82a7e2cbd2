"""Every metric that the code names is declared, and every declared metric is named by the code."""

import ast
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import pytest

from docs import metrics as page
from otel_zernel.batch import Batch, points
from otel_zernel.component.declaration import DeclaredMetric
from otel_zernel.testing import Downstream, make_context
from otel_zernel_libraries.job_environment import JOB_ID, JOB_RUN, LOCAL_RANK, RANK, TASK_ID, WORLD_SIZE
from otel_zernel_libraries.training import semconv
from otel_zernel_processors.phases import PhasesProcessor
from otel_zernel_receivers.otlp_json_file import OtlpJsonFileReceiver
from tests.otlp import metrics_in

EMITTING = {
    *("create_counter", "create_up_down_counter", "create_histogram", "create_gauge"),
    *("create_observable_counter", "create_observable_gauge", "Descriptor", "metric", "gauge", "sum", "series"),
    *("_gauge", "_counter", "_total", "_observable_counter", "NvmlMetric", "_off"),
}
"""Functions whose first argument is the name of a metric."""
NAME = re.compile(r"(zernel|hw)\.[a-z0-9_.]+|otelcol_[a-z0-9_.]+")
DECLARED = {folder: dict(table) for folder, table in page.tables()}


@cache
def nodes(folder: str) -> list[ast.AST]:
    """All nodes of the modules of a component, or of the core, without its declarations."""
    kind, _, name = folder.partition("/")
    root = page.ROOT / "otel_zernel" if kind == "collector" else page.ROOT / kind / f"otel_zernel_{kind}" / name
    paths = (path for path in sorted(root.rglob("*.py")) if path.name not in ("declared.py", "declaration.py"))
    return [node for path in paths for node in ast.walk(ast.parse(path.read_text()))]


def folders() -> list[str]:
    """All components, and the core."""
    found = [
        f"{root.name}/{path.name}"
        for root in page.ROOTS[1:]
        for path in sorted(root.glob("otel_zernel_*/*"))
        if (path / "__init__.py").exists()
    ]
    return ["collector", *found]


def names(folder: str) -> Iterator[str]:
    """The texts in a component; the variable parts of a formatted text as `*`."""
    return (text for node in nodes(folder) if (text := text_of(node)) is not None)


def text_of(node: ast.AST) -> str | None:
    """The text of a literal or of a constant of `semconv`."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(text_of(part) or "*" for part in parts)
        case ast.FormattedValue(value=value):
            return text_of(value)
        case ast.Attribute(value=ast.Name(id="semconv"), attr=constant):
            name = getattr(semconv, constant)
            return name if isinstance(name, str) else None
        case _:
            return None


def emitted(folder: str) -> Iterator[str]:
    """The names of metrics that calls in a component give to functions that emit metrics."""
    for node in nodes(folder):
        if not (isinstance(node, ast.Call) and node.args):
            continue
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        text = text_of(node.args[0])
        if called in EMITTING and text and NAME.fullmatch(text.replace("*", "x")):
            yield text


def fits(pattern: str, name: str) -> bool:
    return bool(re.fullmatch(re.escape(pattern).replace(r"\*", ".+"), name))


@pytest.mark.parametrize("folder", folders())
def test_every_metric_in_the_code_is_declared(folder: str) -> None:
    declared = DECLARED.get(folder, {})
    assert [name for name in sorted(set(emitted(folder))) if not any(fits(name, one) for one in declared)] == []


@pytest.mark.parametrize("folder", sorted(DECLARED))
def test_every_declared_metric_is_used_in_the_code(folder: str) -> None:
    """By its name, or by the constant of its declaration. A table of formats is used as a whole."""
    literals = {text for text in names(folder) if "." in text or "_" in text}
    patterns = {text for text in literals if len(text.replace("*", "")) > len("otelcol_")}
    constants = by_constants(folder)
    unused = [
        name
        for name, metric in DECLARED[folder].items()
        if name not in literals
        and name not in constants
        and not any(fits(pattern, name) for pattern in patterns if "*" in pattern)
        if metric.own or folder != "receivers/csv"
    ]
    assert unused == []


def by_constants(folder: str) -> set[str]:
    """The metrics whose constants in `declared` other modules of the component import."""
    imported = {
        alias.name
        for node in nodes(folder)
        if isinstance(node, ast.ImportFrom) and (node.module or "").endswith(".declared")
        for alias in node.names
    } - {"METRICS"}
    found = set()
    for module in modules(folder):
        for name in imported & vars(module).keys():
            value = getattr(module, name)
            values = value.values() if isinstance(value, dict) else [value]
            found |= {value.name for value in values if not isinstance(value, str)}
    return found


def modules(folder: str) -> Iterator[object]:
    import importlib

    for root in page.ROOTS:
        for path in root.glob("otel_zernel*/**/declared.py"):
            if page.folder_of(path) == folder:
                yield importlib.import_module(".".join(path.relative_to(root).with_suffix("").parts))


PRODUCT = ("otel_zernel", "commands", "deploy", "exporters", "extensions", "libraries", "processors", "receivers")
VOCABULARY = {name for key, name in vars(semconv).items() if key.isupper() and isinstance(name, str)}
"""The names that several components share."""
OF_ENVIRONMENT = {JOB_ID, JOB_RUN, TASK_ID, RANK, WORLD_SIZE, LOCAL_RANK}
MOST_LITERALS = 150


@cache
def literals() -> dict[Path, list[str]]:
    """The texts of the product that begin as a name of ours, outside the vocabulary. Formatted ones are in parts."""
    found: dict[Path, list[str]] = {}
    for path in (path for root in PRODUCT for path in sorted((page.ROOT / root).rglob("*.py"))):
        if "libraries/otel_zernel_libraries/training" not in path.as_posix():
            texts = [node.value for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Constant)]
            found[path] = [text for text in texts if isinstance(text, str) and text.startswith("zernel.")]
    return found


def test_a_name_of_the_vocabulary_is_nowhere_else() -> None:
    environment = page.ROOT / "libraries" / "otel_zernel_libraries" / "job_environment.py"
    again = [
        f"{path.relative_to(page.ROOT)}: {text}"
        for path, texts in literals().items()
        for text in texts
        if text in VOCABULARY and not (text in OF_ENVIRONMENT and path == environment)
    ]
    assert again == [], "use otel_zernel_libraries.training.semconv"


def test_few_names_are_literals() -> None:
    assert sum(len(texts) for texts in literals().values()) <= MOST_LITERALS


def test_a_name_outside_the_vocabulary_is_written_once() -> None:
    counts = Counter(text for texts in literals().values() for text in texts if NAME.fullmatch(text))
    assert [text for text, count in counts.items() if count > 1] == []


def test_every_constant_has_the_name_of_its_value() -> None:
    for key, name in vars(semconv).items():
        if key.isupper():
            assert key == name.removeprefix("zernel.").replace(".", "_").upper()


def test_every_attribute_on_the_page_is_declared() -> None:
    """In the vocabulary, or once in a component."""
    own = {text for texts in literals().values() for text in texts}
    shown = {
        name for table in DECLARED.values() for metric in table.values() for name in (metric.name, *metric.attributes)
    }
    assert {name for name in shown if name.startswith("zernel.")} - VOCABULARY - own == set()


def test_one_name_has_one_unit_and_one_type() -> None:
    seen: dict[str, DeclaredMetric] = {}
    for table in DECLARED.values():
        for name, metric in table.items():
            known = seen.setdefault(name, metric)
            assert (known.unit, known.kind) == (metric.unit, metric.kind), name


async def test_the_metrics_of_a_replayed_training_are_declared_as_they_are() -> None:
    """Name, unit, type and description, and no attribute that is not declared."""
    downstream = Downstream()
    processor = PhasesProcessor(PhasesProcessor.Config(), make_context("processors", "phases"))
    config = OtlpJsonFileReceiver.Config.model_validate({"include": [str(page.ROOT / "examples/training_spans.jsonl")]})
    await OtlpJsonFileReceiver(config, make_context(id_="otlp_json_file")).run(downstream)
    outputs = [output for batch in downstream.batches for output in processor.process(batch)]
    outputs += [*processor.tick(max(times(outputs + downstream.batches))), *processor.flush()]
    metrics = [metric for output in outputs for metric in metrics_in(output.metrics)]
    assert {metric.name for metric in metrics} >= {"zernel.phase.time", "zernel.steps", "zernel.verdict"}
    for metric in metrics:
        declared = DECLARED["processors/phases"][metric.name]
        assert (metric.unit, metric.description) == (declared.unit, declared.description)
        assert metric.WhichOneof("data") == declared.kind
        found = {pair.key for point in points(metric) for pair in point.attributes}
        assert found <= {*declared.attributes, *COMMON}, metric.name


COMMON = {
    "process.pid",
    "process.executable.name",
    "host.name",
    "zernel.rank",
    "zernel.local_rank",
    "zernel.world_size",
}
"""Attributes of every point of a process."""


def times(batches: Sequence[Batch]) -> Iterator[int]:
    for batch in batches:
        for resource in batch.spans.resource_spans:
            for scope in resource.scope_spans:
                yield from (span.end_time_unix_nano for span in scope.spans)
