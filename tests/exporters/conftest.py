"""Fixtures of the tests of exporters."""

from pathlib import Path

import pytest

from tests.exporters.otlp.certificates import Authority


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)
