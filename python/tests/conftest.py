"""What all tests share: a clean environment, and jars that stand in for the plugin."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path

import pyspark
import pytest

import statemark
from statemark import _jvm, jars

#: The line of Spark that this environment has, such as 4.2.
LINE = ".".join(pyspark.__version__.split(".")[:2])

SPARK_VARIABLES = (
    "MASTER",
    "PYSPARK_GATEWAY_PORT",
    "PYSPARK_SUBMIT_ARGS",
    "SPARK_API_MODE",
    "SPARK_CONNECT_MODE_ENABLED",
    "SPARK_HOME",
    "SPARK_LOCAL_REMOTE",
    "SPARK_REMOTE",
)


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No test depends on the Spark that the machine happens to have set up or running."""
    for name in SPARK_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    conf_dir = tmp_path / "no-conf"
    conf_dir.mkdir()
    monkeypatch.setenv("SPARK_CONF_DIR", str(conf_dir))
    monkeypatch.setattr(_jvm, "started", lambda: False)
    monkeypatch.setattr(_jvm, "has_context", lambda: False)
    monkeypatch.setattr(_jvm, "spark_version", lambda: None)


@pytest.fixture
def make_jar() -> Callable[..., Path]:
    """Write a jar that holds one file, named like the jar, for class paths to be asked for."""

    def write(path: Path) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(path, "w") as jar:
            jar.writestr(f"{path.stem}.txt", path.stem)
        return path

    return write


@pytest.fixture
def jars_dir(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, make_jar: Callable[..., Path]
) -> Path:
    """A package with the jar of the line of Spark that is installed, in this version."""
    directory = tmp_path / "jars"
    make_jar(directory / f"statemark-spark_{LINE}_2.13-{statemark.__version__}.jar")
    monkeypatch.setattr(jars, "JARS_DIR", directory)
    return directory


@pytest.fixture
def bundled(jars_dir: Path) -> str:
    """Path of the one bundled jar."""
    return str(jars_dir / f"statemark-spark_{LINE}_2.13-{statemark.__version__}.jar")
