"""The documents name what the code has: settings, metrics, columns, files."""

from __future__ import annotations

import re
from dataclasses import fields
from typing import TYPE_CHECKING

import pytest
from statemark import OperatorMetrics, settings
from support.session import ROOT

if TYPE_CHECKING:
    from pathlib import Path

OPERATIONS = (ROOT / "docs/operations.md").read_text()
_MAIN = ROOT / "jvm/spark/src/main"
_METRICS = "".join(
    path.read_text()
    for path in (
        _MAIN / "scala/statemark/spark/metrics/StoreMetrics.scala",
        _MAIN / "scala/statemark/spark/local/LoadedStore.scala",  # how loads are served
        *_MAIN.glob("scala-shims/*/statemark/spark/metrics/InstanceMetrics.scala"),
    )
)
_TESTS = [*ROOT.glob("jvm/*/src/test/**/*.scala"), *ROOT.glob("jvm/*/src/main/**/*.scala")]


def documents() -> list[Path]:
    return sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("conf/*.md")])


def test_every_metric_is_documented() -> None:
    metrics = set(re.findall(r'"(statemark[A-Z]\w+)"', _METRICS))
    assert metrics
    missing = [name for name in sorted(metrics) if f"`{name}" not in OPERATIONS]
    assert missing == []


def test_no_metric_is_documented_that_does_not_exist() -> None:
    code = _METRICS
    assert [
        name for name in re.findall(r"`(statemark[A-Z]\w+)", OPERATIONS) if name not in code
    ] == []


def test_every_column_of_the_listener_is_documented() -> None:
    columns = [column.name for column in fields(OperatorMetrics)]
    assert [name for name in columns if f"`{name}`" not in OPERATIONS] == []


@pytest.mark.parametrize("path", ["docs/operations.md", "conf/spark-defaults.conf"])
def test_every_setting_is_documented(path: str) -> None:
    keys = (settings.ISOLATION_LEVEL, settings.MAX_UNCOMMITTED_BYTES, settings.LOCAL_DIR)
    text = (ROOT / path).read_text()
    assert [key for key in keys if key.removeprefix(settings.PREFIX) not in text] == []


@pytest.mark.parametrize("path", documents(), ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(path: Path) -> None:
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", path.read_text())
    assert [link for link in links if not (path.parent / link).exists()] == []


@pytest.mark.parametrize("path", sorted(ROOT.glob("docs/adr/*.md")), ids=lambda path: path.name)
def test_suites_that_decisions_name_exist(path: Path) -> None:
    names = {source.stem for source in _TESTS}
    suites = re.findall(r"`(?:[\w.]+\.)?(\w+(?:Suite|Benchmark))`", path.read_text())
    assert suites
    assert [suite for suite in suites if suite not in names] == []
