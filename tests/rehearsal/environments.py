"""Interpreters of the machine, and environments that are made of them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

ROOT = Path(__file__).resolve().parents[2]
OUT = ROOT / "target/rehearsal"
VERSION = (ROOT / "VERSION").read_text().strip()
#: The releases of Python that the package is for.
PYTHONS = ("3.10", "3.11", "3.12", "3.13")
#: Release of Spark by line, the default line first.
RELEASES = dict(
    re.findall(
        r'^\s+Line\("([^"]+)", spark = "([^"]+)"',
        (ROOT / "project/SparkVersions.scala").read_text(),
        flags=re.MULTILINE,
    )
)
#: A command that takes longer hangs: the longest one compiles everything.
LIMIT_S = 1200
_SHOWN = 3000


class StepError(Exception):
    """A step of the rehearsal that did not do what a user would expect of it."""


def run(
    *command: str | Path,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    code: int = 0,
) -> str:
    """Run a command that has to exit with `code`, and return what it printed on both streams."""
    words = [str(word) for word in command]
    done = subprocess.run(
        words,
        cwd=cwd,
        env=env,
        timeout=LIMIT_S,
        check=False,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    if done.returncode != code:
        said = done.stdout[-_SHOWN:]
        problem = f"{' '.join(words)}\nended with {done.returncode} instead of {code}:\n{said}"
        raise StepError(problem)
    return done.stdout


def expect(truth: object, problem: str) -> None:
    """End the step where something is not so."""
    if not truth:
        raise StepError(problem)


def interpreter(version: str) -> Path | None:
    """Find an interpreter of a release such as 3.12: on the path, of pyenv, of uv."""
    return next((path for path in _candidates(version) if _is(path, version)), None)


def _candidates(version: str) -> Iterator[Path]:
    name = f"python{version}"
    found = shutil.which(name)
    if found:
        yield Path(found)
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    yield from sorted(pyenv.glob(f"versions/{version}.*/bin/{name}"), reverse=True)
    uv = Path(os.environ.get("UV_PYTHON_INSTALL_DIR") or Path.home() / ".local/share/uv/python")
    yield from sorted(uv.glob(f"cpython-{version}.*/bin/{name}"), reverse=True)


def _is(path: Path, version: str) -> bool:
    """Tell whether it starts: a shim of pyenv may name a release that is not switched on."""
    code = "import sys, venv, ensurepip; print('%d.%d' % sys.version_info[:2])"
    try:
        done = subprocess.run(
            [path, "-c", code], capture_output=True, text=True, timeout=60, check=False
        )
    except OSError:
        return False
    return done.returncode == 0 and done.stdout.strip() == version


def pyspark_wheels(pip: Path, lines: Iterable[str]) -> Path:
    """Fetch pyspark of lines, and what it needs, into a folder: the one step with an index."""
    folder = OUT / "wheels"
    for line in lines:
        release = RELEASES[line]
        if not list(folder.glob(f"pyspark-{release}-*.whl")):
            run(pip, "-m", "pip", "wheel", "-q", "-w", folder, f"pyspark=={release}")
    return folder


@dataclass(frozen=True)
class Environment:
    """
    A virtual environment with nothing of the project, and a home folder of its own.

    Attributes
    ----------
    folder
        Where it is.
    index
        Folders that pip installs from; it asks no other place.
    """

    folder: Path
    index: Sequence[Path]

    @classmethod
    def create(cls, python: Path, folder: Path, index: Sequence[Path]) -> Environment:
        """Make it."""
        shutil.rmtree(folder, ignore_errors=True)
        run(python, "-m", "venv", folder / "env")
        (folder / "home").mkdir()
        return cls(folder, index)

    @property
    def python(self) -> Path:
        return self.folder / "env/bin/python"

    def variables(self) -> dict[str, str]:
        """Return the variables of a user who has activated this environment, and nothing else."""
        kept = {name: os.environ[name] for name in ("JAVA_HOME", "LANG") if name in os.environ}
        path = f"{self.folder / 'env/bin'}:{os.environ['PATH']}"
        home = str(self.folder / "home")
        # Ivy, which resolves --packages, goes by Java's idea of the home folder.
        java = f"-Duser.home={home}"
        return kept | {"PATH": path, "HOME": home, "SPARK_SUBMIT_OPTS": java}

    def run(self, *command: str | Path, cwd: Path | None = None, code: int = 0) -> str:
        """Run a command in it."""
        return run(*command, cwd=cwd or self.folder, env=self.variables(), code=code)

    def install(self, *requirements: str, index: Sequence[Path] = ()) -> None:
        """Install from the folders of the index, those of the caller first."""
        folders = [word for path in (*index, *self.index) for word in ("--find-links", path)]
        pip = (self.python, "-m", "pip", "install", "-q", "--disable-pip-version-check")
        self.run(*pip, "--no-index", *folders, *requirements)

    def job(self, folder: Path) -> dict[str, object]:
        """Run the job on a folder by the package, and return what it found."""
        import json

        self.run(self.python, ROOT / "tests/rehearsal/job.py", folder, "configure")
        return dict(json.loads((folder / "found.json").read_text()))
