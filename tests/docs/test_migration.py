"""The page for migrations is true: no old name exists any more, and each new one does."""

import importlib.util
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from docs import metrics as page
from otel_zernel.component import Kind
from otel_zernel.registry import Registry
from otel_zernel_libraries.training.words import DELAYS, PHASE_WORDS, THROTTLE_NAMES, VERDICT_WORDS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/migration.md").read_text("utf-8") + (ROOT / "docs/development/packages.md").read_text("utf-8")
METRICS = page.page()
KINDS: dict[str, Kind] = {"resource": "processors", "percentiles": "processors", "prometheus": "exporters"}


def rows(heading: str, columns: str) -> Iterator[list[str]]:
    """The cells of a table below a heading, without backquotes."""
    section = PAGE.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    table = section.partition(f"| {columns} |\n")[2].partition("\n\n")[0]
    found = [[cell.strip().strip("`") for cell in line.strip("|").split(" | ")] for line in table.splitlines()[1:]]
    assert found, heading
    return iter(found)


@pytest.mark.parametrize(
    ("before", "now"), [row[:2] for row in rows("Metrics and attributes", "before | now | what to do")]
)
def test_a_renamed_metric_has_only_its_new_name(before: str, now: str) -> None:
    assert f"| `{before}` |" not in METRICS
    assert f"| `{now}` |" in METRICS


def test_the_metrics_that_changed_their_meaning_exist() -> None:
    for metrics, _, now in rows("Metrics and attributes", "metric | before | now"):
        for name in [*metrics.replace("`", "").split(", "), *re.findall(r"`(zernel\.[\w.]+)`", now)]:
            assert f"| `{name}` |" in METRICS, name


@pytest.mark.parametrize(
    ("component", "before", "now"), [row[:3] for row in rows("Options", "component | before | now | what to do")]
)
def test_a_renamed_option_is_accepted_only_by_its_new_name(component: str, before: str, now: str) -> None:
    fields = Registry.installed().load(KINDS[component], component).Config.model_fields
    assert before not in fields
    assert now in fields


def test_the_options_that_changed_their_meaning_exist() -> None:
    samples = "\n".join(path.read_text("utf-8") for path in ROOT.glob("*/otel_zernel_*/*/sample.yaml"))
    for _, keys, *_ in rows("Options", "component | key | change | what to do"):
        for key in re.findall(r"\w+", keys.replace("::", " ")):
            assert re.search(rf"\b{key}:", samples) or key == "passwords", key


def test_the_new_words_are_those_of_every_view() -> None:
    words = {word for phase in PHASE_WORDS.values() for word in (phase.name, phase.short)}
    words |= {*THROTTLE_NAMES.values(), *(kept.sentence for kept in VERDICT_WORDS.values())}
    for before, now, _ in rows("Words in reports, pages and logs", "before | now | where"):
        assert now in words or now in DELAYS[0]
        assert before not in words


@pytest.mark.parametrize(("before", "now"), list(rows("Modules", "before | now")))
def test_a_moved_module_is_only_in_its_new_place(before: str, now: str) -> None:
    assert not exists(before)
    assert exists(now)


def exists(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # its parent is missing
        return False


def test_every_group_of_entry_points_is_named() -> None:
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["entry-points"]
    assert {group for group in groups if f"`{group}`" not in PAGE} == set()
