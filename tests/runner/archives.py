"""Archives of classes (class data sharing): with one, a process starts in two thirds of the time.

Each is made once, by a process that starts a session and runs a query, and again when the jars have
changed. Where it does not fit, the virtual machine leaves it aside, so that it decides nothing.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

#: Each plan runs a few times only: a JVM that optimizes less is done sooner. As in build.sbt.
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -XX:+UseSerialGC"
#: A test of Spark's that runs a query, by part of its name.
_SUITE = "org.apache.spark.sql.streaming.RocksDBStateStoreStreamingAggregationSuite"
_TEST = "simple count, update mode - state format version 2"
_QUERY = Path(__file__).with_name("first_query.py")
_QUIET = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")


def make(line: str, *, scala: Path, out: Path) -> None:
    """
    Make the archives that are not there.

    Parameters
    ----------
    line
        Line of Spark.
    scala
        Folder of the provider's test process.
    out
        Takes the archives.
    """
    out.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(2) as pool:
        made = [pool.submit(_python, pyspark(line, out))]
        libraries = scala / "libraries"
        # A line from PyPI has no tests of Spark's.
        if "-tests.jar" in libraries.read_text():
            made.append(pool.submit(_scala, libraries, provider(line, out)))
        for one in made:
            one.result()


def pyspark(line: str, out: Path) -> Path:
    """Archive of the jars of pyspark."""
    return out / f"pyspark-{line}.jsa"


def provider(line: str, out: Path) -> Path:
    """Archive of the libraries on the class path of the provider's tests."""
    return out / f"provider-{line}.jsa"


def flags(archive: Path) -> list[str]:
    """Options of a virtual machine that uses an archive; none where it could not be made."""
    return [f"-XX:SharedArchiveFile={archive}", *_QUIET] if archive.is_file() else []


def _python(archive: Path) -> None:
    import pyspark as installed

    jars = sorted(Path(installed.__file__).parent.glob("jars/*.jar"))
    key = "\n".join(f"{jar} {jar.stat().st_mtime_ns}" for jar in jars)
    options = f"{SHORT_LIVED} -XX:ArchiveClassesAtExit={archive} {' '.join(_QUIET)}"
    environment = {"SPARK_SUBMIT_OPTS": options, "PYSPARK_PYTHON": sys.executable}
    _dump(archive, key, [sys.executable, str(_QUERY)], environment)


def _scala(libraries: Path, archive: Path) -> None:
    command = ["java", f"@{libraries}", f"-XX:ArchiveClassesAtExit={archive}", *_QUIET]
    command += ["org.scalatest.tools.Runner", "-oW", "-s", _SUITE, "-z", _TEST]
    _dump(archive, libraries.read_text(), command, {})


def _dump(archive: Path, key: str, command: list[str], environment: dict[str, str]) -> None:
    """Run a command that leaves an archive, unless it did so for the same jars before."""
    made_for = archive.with_suffix(".for")
    if archive.is_file() and made_for.is_file() and made_for.read_text() == key:
        return
    archive.unlink(missing_ok=True)
    folder = tempfile.mkdtemp(prefix="statemark-archive-")
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "TMPDIR": folder, "HOME": folder, **environment},
        stdin=subprocess.DEVNULL,
        # The virtual machine of a Python process ends after it, and with it the pipe.
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,  # without an archive tests take longer, no more
        timeout=300,
    )
    log = archive.with_suffix(".log")
    log.write_bytes(done.stdout)
    shutil.rmtree(folder, ignore_errors=True)
    if archive.is_file():
        made_for.write_text(key)
    else:
        print(f"no archive of classes was made, see {log}", flush=True)
