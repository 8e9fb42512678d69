"""One suite in a process of its own: a crash or a time-out loses no other suite."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from conformance import outcome
from conformance.outcome import Run

if TYPE_CHECKING:
    from collections.abc import Sequence

SPARKS_PROVIDER = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
EXTENSION = "statemark.spark.StatemarkExtensions"


@dataclass(frozen=True, kw_only=True)
class Suites:
    """Spark's suites as `sbt conformance/suiteOptions` laid them out, and where results go."""

    folder: Path
    results: Path
    timeout: float = 1800.0

    @property
    def spark(self) -> str:
        """The Spark release."""
        return (self.folder / "spark").read_text()

    def has(self, suite: str) -> bool:
        """Whether this Spark line has the suite."""
        classes = self.folder / f"spark-sql-{self.spark}-tests"
        return (classes / (suite.replace(".", "/") + ".class")).is_file()

    def run(self, suite: str, provider: str, only: Sequence[str] = ()) -> Run:
        """Run a suite on a provider, or some tests of it only, 30 minutes at most."""
        place = "spark" if provider == SPARKS_PROVIDER else "ours"
        work = self.results / "work" / f"{suite}-{place}"
        shutil.rmtree(work, ignore_errors=True)
        (work / "tmp").mkdir(parents=True)
        home = _home(work / "home")
        log = self.results / "logs" / f"{suite}-{place}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        events = work / "events"
        command = ["java", *self._options(provider, work, home), "org.scalatest.tools.Runner"]
        command += ["-oW", "-C", "statemark.conformance.JsonLines", "-s", suite]
        for name in only:
            command += ["-t", name]
        environment = {
            **os.environ,
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "XDG_CACHE_HOME": str(work / "cache"),
            "SPARK_TESTING": "1",
            "SPARK_SCALA_VERSION": "2.13",  # else its launcher looks for a source tree
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
        }
        started = time.monotonic()
        with log.open("w") as output:
            process = subprocess.Popen(
                command,
                cwd=work,
                env=environment,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            late = ""
            try:
                process.wait(self.timeout)
            except subprocess.TimeoutExpired:
                late = f"it did not end within {self.timeout:.0f} s"
            finally:
                _kill(process)
        tests, by_target, by_spark, aborted = outcome.read(events, work)
        shutil.rmtree(work, ignore_errors=True)
        return Run(
            tests=tests,
            opened_by_target=by_target,
            opened_by_spark=by_spark,
            seconds=round(time.monotonic() - started, 1),
            broke_off=late or (aborted and f"{aborted} (exit {process.returncode}, see {log})"),
        )

    def _options(self, provider: str, work: Path, home: Path) -> list[str]:
        agent = f"-javaagent:{(self.folder / 'agent').read_text()}={provider};{work}"
        options = [f"@{self.folder / 'options'}", agent, "-Dspark.testing=1"]
        settings = {
            "spark.test.home": str(home),
            "java.io.tmpdir": str(work / "tmp"),
            "statemark.conformance.events": str(work / "events"),
            "spark.sql.streaming.stateStore.providerClass": provider,
            # Executors with a process of their own.
            "spark.executor.extraClassPath": self._class_path(),
            "spark.executor.extraJavaOptions": f'"{agent}"',
        }
        if provider != SPARKS_PROVIDER:
            settings["spark.sql.extensions"] = EXTENSION
        return options + [f"-D{key}={value}" for key, value in settings.items()]

    def _class_path(self) -> str:
        lines = [line.strip('"') for line in (self.folder / "options").read_text().splitlines()]
        return lines[lines.index("-cp") + 1]


def _home(home: Path) -> Path:
    """A Spark home that suites may write to; executors take jars from it, tests Python."""
    import pyspark

    installed = Path(pyspark.__file__).parent
    (home / "python").mkdir(parents=True)
    (home / "jars").symlink_to(installed / "jars")
    (home / "bin").symlink_to(installed / "bin")
    (home / "python" / "lib").symlink_to(installed / "python" / "lib")
    (home / "python" / "pyspark").symlink_to(installed)
    return home


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End the process and all that it started: executors, Python workers."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
