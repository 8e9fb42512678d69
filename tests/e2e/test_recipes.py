"""The blocks of docs/recipes.md run as printed, and print what the page shows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.processes import LIMIT_S, SMALL_JVM
from support.session import LINE, PATIENT, ROOT, STATE_STORE, STATEMARK_PROVIDER, statemark_jar

_PAGE = (ROOT / "docs/recipes.md").read_text()
_SECTION = re.compile(r"^## (.+?)\n(.*?)(?=^## |\Z)", re.DOTALL | re.MULTILINE)
_BLOCK = re.compile(
    r"^```(python|sh)\n(.*?)^```$(?:\n\n```text\n(.*?)^```$)?", re.DOTALL | re.MULTILINE
)
#: What differs from run to run: sizes, what is on the local disk already, and when a query ended.
_VARYING = re.compile(
    r"\d[\d.]* (?:B|KiB|MiB)\b|\d+ changelogs?.*|\d{4}-\d\d-\d\dT[\d:]+Z", re.ASCII
)


@dataclass(frozen=True)
class Recipe:
    """A section of the page: its code, and what the page shows of it."""

    name: str
    language: str
    code: str
    shown: str

    @property
    def is_elsewhere(self) -> bool:
        """Whether it runs in a process of its own: a command, or a block with its own session."""
        return self.language == "sh" or "SparkSession.builder" in self.code


def _recipes() -> list[Recipe]:
    return [
        Recipe(name, *block)
        for name, text in _SECTION.findall(_PAGE)
        for block in _BLOCK.findall(text)
    ]


*RECIPES, QUERIES = _recipes()

# A block begins on a line with its name.
_MARK = "=== "
# What has ended is known to listeners soon, and not at once. A recipe of another process finds the
# port by the number that the page has.
_PROLOGUE = """
import contextlib, subprocess, sys
with contextlib.suppress(Exception):
    broken.awaitTermination()
spark._jsc.sc().listenerBus().waitUntilEmpty()
_service = getattr(spark._jvm, "org.apache.spark.sql.connect.service.SparkConnectService$")
_port = str(getattr(_service, "MODULE$").localPort())
def _elsewhere(command, code):
    subprocess.run([*command, code.replace("15002", _port)], check=True)
"""
_EPILOGUE = """
for query in spark.streams.active:
    query.stop()
spark.stop()
"""


def _script() -> str:
    """Return all blocks as one: those of other processes start them."""
    parts = [QUERIES.code, _PROLOGUE]
    for recipe in RECIPES:
        parts.append(f"print({_MARK + recipe.name!r}, flush=True)\n")
        if recipe.is_elsewhere:
            command = ["bash", "-ec"] if recipe.language == "sh" else [sys.executable, "-c"]
            parts.append(f"_elsewhere({command!r}, {recipe.code!r})\n")
        else:
            parts.append(recipe.code)
    return "\n".join([*parts, _EPILOGUE])


@pytest.fixture(autouse=True)
def _no_query_left() -> None:
    """Need no session in this process."""


@pytest.fixture(scope="module")
def directory(provider: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the blocks have run; `out` has what they printed."""
    if provider != STATEMARK_PROVIDER:
        pytest.skip("the page sets its provider")
    if LINE == "4.0":
        pytest.skip("PySpark 4.0 has no transformWithState in rows")
    statemark_jar()
    here = tmp_path_factory.mktemp("recipes")
    (here / "page.py").write_text(_script())
    conf = {
        **PATIENT,
        "spark.ui.enabled": "false",
        "spark.connect.grpc.binding.port": "0",
        # No snapshots by the way, which depend on the time, and no batches that only let rows go.
        f"{STATE_STORE}.maintenanceInterval": "1h",
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    }
    flags = " ".join(f"--conf {key}={value}" for key, value in conf.items())
    environment = {
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_SUBMIT_ARGS": f"{flags} pyspark-shell",
        "SPARK_SUBMIT_OPTS": SMALL_JVM,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    with (here / "out").open("w") as out:
        done = subprocess.run(
            [sys.executable, "page.py"],
            check=False,
            cwd=here,
            env=os.environ | environment,
            stdout=out,
            stderr=subprocess.PIPE,
            text=True,
            timeout=2 * LIMIT_S,
        )
    assert done.returncode == 0, (here / "out").read_text()[-1000:] + done.stderr[-4000:]
    return here


def _comparable(text: str) -> list[str]:
    return [_VARYING.sub("#", line).rstrip() for line in text.strip().splitlines()]


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.name)
def test_a_recipe_prints_what_the_page_shows(directory: Path, recipe: Recipe) -> None:
    said = (directory / "out").read_text().partition(f"{_MARK}{recipe.name}\n")[2]
    assert _comparable(said.partition(_MARK)[0]) == _comparable(recipe.shown)


def test_the_chart_has_the_keys(directory: Path) -> None:
    assert "<!-- c6 -->" in (directory / "totals.svg").read_text()


def test_each_section_is_a_recipe() -> None:
    sections = dict(_SECTION.findall(_PAGE))
    assert list(sections) == [recipe.name for recipe in (*RECIPES, QUERIES)]
    assert [name for name, text in sections.items() if "](" not in text] == []
