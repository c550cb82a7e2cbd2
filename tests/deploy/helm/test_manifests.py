"""The plain manifests are those of the chart, and Kustomize reads them. UPDATE_GOLDEN=1 renders them again."""

import os
import subprocess
from pathlib import Path

import pytest
import yaml

from docs.catalogue import ROOT
from tests.deploy.helm.rendering import program, render_text

FOLDERS = sorted(path.parent for path in (ROOT / "deploy" / "manifests").glob("*/values.yaml"))


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_they_are_the_charts(folder: Path) -> None:
    text = render_text(folder / "values.yaml", name="otel-zernel")
    plain = text.replace("app.kubernetes.io/managed-by: Helm", "app.kubernetes.io/managed-by: kustomize")
    wanted = [one for one in yaml.safe_load_all(plain) if one]
    for one in wanted:
        one["metadata"].pop("namespace", None)
        one["metadata"]["labels"].pop("helm.sh/chart", None)
    golden = folder / "manifests.yaml"
    if os.environ.get("UPDATE_GOLDEN"):
        golden.write_text(yaml.safe_dump_all(wanted, sort_keys=False))
    assert list(yaml.safe_load_all(golden.read_text())) == wanted


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_kustomize_builds_them(folder: Path) -> None:
    done = subprocess.run([program("kubectl"), "kustomize", folder], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    built = [one["kind"] for one in yaml.safe_load_all(done.stdout)]
    assert sorted(built) == sorted(one["kind"] for one in yaml.safe_load_all((folder / "manifests.yaml").read_text()))
