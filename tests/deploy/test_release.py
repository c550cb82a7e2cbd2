"""The steps of a release: the version in all files, the changes, and a workflow that fits the project."""

import datetime
import re
import tomllib
from pathlib import Path

import pytest
import yaml

from deploy.release.cut import CannotCut, cut, with_section, with_version
from docs.catalogue import ROOT
from otel_zernel import __version__

WORKFLOW = yaml.safe_load((ROOT / ".github/workflows/release.yaml").read_text("utf-8"))
DAY = datetime.date(2026, 12, 1)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("pip install dist/otel_zernel-1.2.3-py3-none-any.whl", "pip install dist/otel_zernel-1.3.0-py3-none-any.whl"),
        ("docker://REGISTRY/otel-zernel:1.2.3", "docker://REGISTRY/otel-zernel:1.3.0"),
        ("helm.sh/chart: otel-zernel-1.2.3", "helm.sh/chart: otel-zernel-1.3.0"),
        ("appVersion: 1.2.3", "appVersion: 1.3.0"),
        ('__version__ = "1.2.3"', '__version__ = "1.3.0"'),
        ("the protocol in version 1.2.3 and numpy-1.2.3", "the protocol in version 1.2.3 and numpy-1.2.3"),
        ("otel-zernel:1.2.3.4", "otel-zernel:1.2.3.4"),
    ],
)
def test_only_the_version_of_this_project_is_replaced(before: str, after: str) -> None:
    assert with_version(before, "1.2.3", "1.3.0") == after


def test_unreleased_changes_get_the_version_and_the_day() -> None:
    text = "# Changelog\n\n## [Unreleased]\n\n### Added\n\n- A.\n"
    cut_text = with_section(text, "1.3.0", DAY)
    assert cut_text == "# Changelog\n\n## [Unreleased]\n\n## [1.3.0] - 2026-12-01\n\n### Added\n\n- A.\n"
    with pytest.raises(CannotCut, match="no unreleased changes"):
        with_section(cut_text, "1.4.0", DAY)


def test_a_word_that_is_no_version_changes_nothing(tmp_path: Path) -> None:
    with pytest.raises(CannotCut, match="next is no version"):
        cut("next", DAY, tmp_path)


def test_every_file_that_names_the_version_would_get_the_next_one() -> None:
    """Otherwise a release would have files of two versions."""
    named = ("pyproject.toml", "README.md", "otel_zernel/__init__.py", "deploy/README.md", "docs/kubernetes.md")
    charts = ("deploy/helm/otel-zernel/Chart.yaml", "deploy/manifests/gateway/manifests.yaml", "docs/otel-zernel.1")
    for name in (*named, *charts, "deploy/systemd/README.md", "deploy/deb/README.md", "docs/questions/container.md"):
        text = (ROOT / name).read_text("utf-8")
        assert __version__ in text, name
        assert __version__ not in with_version(text, __version__, "99.0.0"), name


def test_the_workflow_tries_every_supported_python() -> None:
    classifiers = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["classifiers"]
    supported = re.findall(r"Programming Language :: Python :: (3\.\d+)", "\n".join(classifiers))
    assert WORKFLOW["jobs"]["install"]["strategy"]["matrix"]["python"] == supported


def test_the_workflow_publishes_without_a_token_and_only_what_was_installed() -> None:
    jobs = WORKFLOW["jobs"]
    assert jobs["publish"]["needs"] == "install"
    assert jobs["install"]["needs"] == "build"
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
    assert "verify-tag" in yaml.safe_dump(jobs["build"])
    assert "secrets." not in yaml.safe_dump(jobs)


def test_the_workflow_names_the_commits_of_other_projects_actions() -> None:
    """A tag can be moved to another commit; that of the release would then get the right to publish."""
    used = [step["uses"] for job in WORKFLOW["jobs"].values() for step in job["steps"] if "uses" in step]
    assert used
    assert [name for name in used if not re.search(r"@[0-9a-f]{40}$", name)] == []
