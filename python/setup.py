"""Parts of a build that `pyproject.toml` cannot say: no wheel without jars, equal bytes again.

`SOURCE_DATE_EPOCH` is the time that all files in an archive get; `make wheel` sets it.
"""

from __future__ import annotations

import gzip
import io
import os
import re
import tarfile
from pathlib import Path

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.sdist import sdist
from setuptools.errors import SetupError

_JARS = Path(__file__).parent / "src/statemark/jars"
_EXTRA = re.compile(r"pyspark(?=.*>=(\d+)\.(\d+)\b)(?=.*<\1\.(\d+)\b)")


def refuse_without_jars(*, version: str, extra: str) -> None:
    """Refuse a build whose jars are not one for each line of Spark, of this version.

    Parameters
    ----------
    version : str
        The version of the package.
    extra : str
        What the extra `pyspark` requires: the lines that there have to be jars for.
    """
    found = _EXTRA.match(extra)
    if found is None:
        problem = f"the extra pyspark is {extra!r}: use pyspark>=<line>,<<line>"
        raise SetupError(problem)
    major, first, end = map(int, found.groups())
    wanted = {f"statemark-spark_{major}.{minor}_2.13-{version}.jar" for minor in range(first, end)}
    there = {path.name for path in _JARS.glob("*.jar")}
    lacks, stale = sorted(wanted - there), sorted(there - wanted)
    if lacks or stale:
        reason = "; ".join(
            f"{what}: {', '.join(names)}"
            for what, names in (("missing", lacks), ("of another version or line", stale))
            if names
        )
        problem = (
            f"Statemark {version} cannot be packed without its jars\n"
            f"  reason: {_JARS} has not one jar for each line of Spark ({reason})\n"
            "  remedy: run `make wheel` in the repository, which builds them; for a wheel from"
            " these sources take the jars from a wheel of the same version"
        )
        raise SetupError(problem)


def _check(command: bdist_wheel | sdist) -> None:
    (extra,) = command.distribution.extras_require["pyspark"]
    refuse_without_jars(version=command.distribution.get_version().strip(), extra=extra)


class Wheel(bdist_wheel):
    """A wheel with the jars of every line."""

    def run(self) -> None:
        """Build it, if the jars are there."""
        _check(self)
        super().run()


class Sources(sdist):
    """Sources with the jars of every line, from which a wheel can be built without sbt."""

    def run(self) -> None:
        """Build them, if the jars are there."""
        _check(self)
        super().run()
        epoch = os.environ.get("SOURCE_DATE_EPOCH")
        for path in self.archive_files if epoch else ():
            _repack(Path(path), int(epoch or 0))


def _repack(path: Path, epoch: int) -> None:
    """Write an archive again with sorted entries, one time, and no names of users."""
    with tarfile.open(path) as archive:
        entries = sorted(archive.getmembers(), key=lambda entry: entry.name)
        files = [(entry, archive.extractfile(entry)) for entry in entries]
        contents = [(entry, file.read() if file else b"") for entry, file in files]
    with (
        path.open("wb") as raw,
        gzip.GzipFile("", "wb", fileobj=raw, mtime=epoch) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for entry, content in contents:
            clean = tarfile.TarInfo(entry.name)
            clean.type, clean.size, clean.mtime = entry.type, entry.size, epoch
            clean.mode = 0o755 if entry.isdir() or entry.mode & 0o100 else 0o644
            archive.addfile(clean, io.BytesIO(content))


if __name__ == "__main__":  # the backend runs this file under that name; tests import it
    setup(cmdclass={"bdist_wheel": Wheel, "sdist": Sources})
