"""The Java that Spark's scripts would start."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from statemark.errors import MissingDependencyError

#: The oldest release of Java that every line of Spark with a jar takes.
NEEDED = 17
REMEDY = f"install Java {NEEDED} or later, and set JAVA_HOME to its directory"
_VERSION = re.compile(r'version "([\d._]+)')
_RELEASE = re.compile(r'^JAVA_VERSION="([\d._]+)', re.MULTILINE)
_ANSWERS_WITHIN_S = 20


def program(env: Mapping[str, str]) -> Path | None:
    """Return the program that Spark's scripts start; None where there is none."""
    home = env.get("JAVA_HOME")
    if not home:
        return on_path(env)
    java = Path(home) / "bin" / "java"
    return java if java.is_file() else None


def on_path(env: Mapping[str, str]) -> Path | None:
    """Return the program that a shell starts."""
    found = shutil.which("java", path=env.get("PATH", ""))
    return Path(found) if found else None


def version_of(java: Path) -> str | None:
    """Return the version of a Java, by the file beside it, or else by what it says."""
    release = java.resolve().parent.parent / "release"
    if release.is_file():
        named = _RELEASE.search(release.read_text(errors="replace"))
        if named:
            return named[1]
    try:
        said = subprocess.run(
            [str(java), "-version"],
            capture_output=True,
            text=True,
            check=False,
            timeout=_ANSWERS_WITHIN_S,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    named = _VERSION.search(said.stderr + said.stdout)
    return named[1] if named else None


def release_of(version: str) -> int:
    """Return the release of a version: Java 8 calls itself 1.8."""
    parts = [int(part) for part in re.findall(r"\d+", version)]
    return parts[1] if parts[0] == 1 and len(parts) > 1 else parts[0]


def missing(env: Mapping[str, str]) -> MissingDependencyError:
    """Return the error where there is no Java that can be run."""
    home = env.get("JAVA_HOME")
    problem = "there is no Java that Spark could start"
    reason = "JAVA_HOME is not set, and no java on PATH can be run"
    if home:
        reason = f"JAVA_HOME is {home}, and {home}/bin/java cannot be run"
    return MissingDependencyError(problem, reason=reason, remedy=REMEDY)


def too_old(java: Path, version: str) -> MissingDependencyError:
    """Return the error of a Java on which Spark does not run."""
    problem = f"Java {version} is too old"
    reason = f"Spark needs Java {NEEDED} or later, and would start {java}"
    return MissingDependencyError(problem, reason=reason, remedy=REMEDY)


def refuse_unfit(env: Mapping[str, str]) -> None:
    """Refuse to start Spark without a Java that can run it.

    Parameters
    ----------
    env : Mapping
        Environment variables.

    Raises
    ------
    MissingDependencyError
        If there is no Java, or it is too old.
    """
    java = program(env)
    version = version_of(java) if java else None
    if java is None or version is None:
        raise missing(env)
    if release_of(version) < NEEDED:
        raise too_old(java, version)
