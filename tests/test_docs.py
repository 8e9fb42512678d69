"""The documents name what the code has: settings, columns, files. For metrics see test_tables."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import fields
from typing import TYPE_CHECKING

import pytest
from statemark import OperatorMetrics, doctor_kinds, errors, settings
from support import connect
from support.session import ROOT

if TYPE_CHECKING:
    from pathlib import Path

METRICS = (ROOT / "docs/metrics.md").read_text()
SETTINGS = (ROOT / "docs/settings.md").read_text()
ERRORS = (ROOT / "docs/errors.md").read_text()
_TESTS = [*ROOT.glob("jvm/*/src/test/**/*.scala"), *ROOT.glob("jvm/*/src/main/**/*.scala")]


def documents() -> list[Path]:
    folders = ("*.md", "docs/**/*.md", "conf/**/*.md", "python/*.md")
    return sorted(path for folder in folders for path in ROOT.glob(folder))


def headings(path: Path) -> set[str]:
    """Anchors of a page, as GitHub makes them of its headings."""
    text = re.sub(r"^```.*?^```", "", path.read_text(), flags=re.DOTALL | re.MULTILINE)
    titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_every_column_of_the_listener_is_documented() -> None:
    columns = [column.name for column in fields(OperatorMetrics)]
    assert [name for name in columns if f"`{name}`" not in METRICS] == []


def test_the_table_of_settings_is_that_of_the_code() -> None:
    table = SETTINGS.partition("\n## Statemark's own\n")[2].partition("\n## ")[0]
    found = {}
    for keys, defaults, units in re.findall(
        r"^\| (`[^|]*) \| ([^|]*) \| ([^|]*) \|", table, re.MULTILINE
    ):
        names = [name.strip("`") for name in keys.split(", ")]
        cells = [cell.strip("`") for cell in defaults.split(", ")]
        found.update(zip(names, zip(cells, units.split(", "), strict=True), strict=True))
    assert found == {s.name: (s.default or "unset", s.unit) for s in settings.SETTINGS}


def test_the_table_of_findings_is_that_of_the_code() -> None:
    page = (ROOT / "docs/doctor.md").read_text()
    rows = re.findall(r"^\| `([a-z-]+)` \| (\w+) \| (.*) \|$", page, re.MULTILINE)
    assert rows == [(kind.name, kind.severity, kind.text) for kind in doctor_kinds.KINDS]


def test_every_setting_is_in_the_sample_file() -> None:
    text = (ROOT / "conf/spark-defaults.conf").read_text()
    assert [s.key for s in settings.SETTINGS if s.key not in text] == []


def test_every_kind_of_failure_is_documented() -> None:
    rows = re.findall(r"^\| `(\w+)Error` \| .* \| (yes|no) \| .* \|$", ERRORS, re.MULTILINE)
    documented = {name: answer == "yes" for name, answer in rows}
    assert documented == {name: kind.is_retryable for name, kind in errors.KINDS.items()}


def test_every_log_line_is_one_of_the_plugin() -> None:
    """With its level: the words between those that a line fills in, as the sources have them."""
    table = ERRORS.partition("\n## Log lines\n")[2]
    rows = re.findall(r"^\| `([^`]*)` \| (\w+) \|", table, re.MULTILINE)
    files = [path.read_text() for path in ROOT.glob("jvm/*/src/main/**/*.scala")]
    sources = [re.sub(r'"\s*\+\s*s?"', "", text) for text in files]
    assert len(rows) > 10
    for line, level in rows:
        words = [part.strip() for part in line.split("…") if part.strip()]
        found = [text for text in sources if all(part in text for part in words)]
        assert [text for text in found if f"log.{level.lower()}(" in text], line


def test_a_connect_server_is_started_by_what_pyspark_has() -> None:
    """The pyspark of PyPI lacks the script of Spark's download; test_connect starts the class."""
    page = (ROOT / "docs/install.md").read_text()
    commands = re.findall(r"^    (\S.*)$", page, re.MULTILINE)
    assert [line for line in commands if line.startswith("start-connect-server")] == []
    assert any(connect.SERVER in line for line in commands)


def test_the_figures_of_the_readme_are_those_of_the_benchmarks() -> None:
    page = (ROOT / "docs/benchmarks/README.md").read_text()
    readme = (ROOT / "README.md").read_text()
    headline = re.search(r"(?:^\|.*\n)+", page, re.MULTILINE)
    said = re.search(r"^Measured (.*?)\*Slow\*", page, re.MULTILINE | re.DOTALL)
    repeated = re.search(r"^Measured on (.*) on a machine", readme, re.MULTILINE)
    assert headline
    assert headline[0] in readme
    assert said
    assert repeated
    dates = [re.findall(r"\d{4}-\d\d-\d\d", found[1]) for found in (said, repeated)]
    assert sorted({*dates[0]}) == dates[1]


def test_the_page_of_benchmarks_is_written_from_the_results(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "bench/plot.py"), "--out", str(tmp_path)]
    subprocess.run(command, check=True, capture_output=True)
    page = ROOT / "docs/benchmarks/README.md"
    assert (tmp_path / "README.md").read_text() == page.read_text()


@pytest.mark.parametrize("path", documents(), ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(path: Path) -> None:
    for link, anchor in re.findall(r"\]\((?!https?:)([^)#\s]*)#?([^)\s]*)\)", path.read_text()):
        page = path.parent / link if link else path
        assert page.exists(), link
        assert not anchor or anchor in headings(page), f"{link}#{anchor}"


@pytest.mark.parametrize("path", sorted(ROOT.glob("docs/adr/*.md")), ids=lambda path: path.name)
def test_suites_that_decisions_name_exist(path: Path) -> None:
    names = {source.stem for source in _TESTS}
    suites = re.findall(r"`(?:[\w.]+\.)?(\w+(?:Suite|Benchmark))`", path.read_text())
    assert suites
    assert [suite for suite in suites if suite not in names] == []
