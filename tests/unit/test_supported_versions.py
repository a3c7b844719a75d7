"""The supported versions are checked at the start, and are those that the package declares."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hayase.core.errors import EnvironmentUnfit
from hayase.engine.spark.session import check_spark_version

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("version", ["4.3.0", "4.3.1.dev0", "4.3"])
def test_a_supported_spark(version: str) -> None:
    check_spark_version(version)


@pytest.mark.parametrize("version", ["3.5.1", "4.2.0", "4.30.0", "5.0.0"])
def test_another_spark_is_refused(version: str) -> None:
    with pytest.raises(
        EnvironmentUnfit, match=rf"found pyspark {version}; .* Spark 4\.3: install it with `pip install"
    ):
        check_spark_version(version)


def test_the_package_declares_the_same_versions() -> None:
    declared = (ROOT / "pyproject.toml").read_text()
    assert '"pyspark>=4.3,<4.4"' in declared
    assert 'requires-python = ">=3.11"' in declared
    assert re.search(r"version_info < \(3, 11\)", (ROOT / "src/hayase/__init__.py").read_text())
