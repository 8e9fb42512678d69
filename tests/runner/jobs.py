"""What runs: suites and test files, put together into processes by what each of them took."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from runner import archives
from runner import quick as chosen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from runner.durations import Durations

ROOT = Path(__file__).resolve().parents[2]
ARCHIVES = ROOT / "target/archives"
#: Logs and results of the last run.
OUT = ROOT / "target/tests"
#: Names of suites, a line each; `make test-full` may run those of a part again.
FAILED_SUITES = "failed-suites"

#: Suites that take no longer together share a process: a start and a session cost seconds.
SHARED_S = 120.0
#: A suite that nobody has timed yet.
UNKNOWN_S = 20.0

#: Folders of sbt projects with suites, by the project's name.
PROJECTS = {
    "core": "jvm/core",
    "kafka": "jvm/kafka",
    "provider": "jvm/spark",
    "sink": "jvm/sink",
    "testkit": "jvm/testkit",
}
#: What has no class of Spark's is the same on every line: other lines leave it out.
OF_SPARK = (
    "provider",
    "sink",
    "testkit",
    "tests/cluster",
    "tests/e2e",
    "tests/kafka",
    "python/tests/spark",
    "python/tests/unit",
)
#: Folders whose files share a process; each has fixtures of its own.
PYTHON_FOLDERS = (
    "tests/cluster",
    "tests/conformance",
    "tests/e2e",
    "tests/kafka",
    "tests/runner",
    "tests",
    "python/tests/docs",
    "python/tests/packaging",
    "python/tests/spark",
    "python/tests/unit",
)


@dataclass(frozen=True, kw_only=True)
class Job:
    """
    A process, and the suites that it runs.

    Attributes
    ----------
    name
        Unique; names its folder of logs and results.
    suites
        Names of classes, or paths of test files.
    seconds
        What the suites took when they were last recorded.
    command
        Makes the command from the job's folder of results, which takes JUnit XML, and the folder
        that is its own while it runs: with `tmp`, `cache` and `home`.
    cwd
        Where it runs.
    environment
        Besides that of this process.
    """

    name: str
    suites: tuple[str, ...]
    seconds: float
    command: Callable[[Path, Path], list[str]]
    cwd: Path = ROOT
    environment: Mapping[str, str] = field(default_factory=dict)


def plan(durations: Durations, *, line: str, words: Sequence[str] = (), whole: bool) -> list[Job]:
    """
    Make the jobs of a line of Spark, the longest first.

    Parameters
    ----------
    durations
        What suites took.
    line
        Such as 4.2; sbt has left its test processes below `jvm/*/target/spark-<line>`.
    words
        Parts of names, to pick suites by; all where there is none.
    whole
        Whether what does not depend on Spark's line runs as well, and a part of Spark's own suites.
    """

    def picked(names: Iterable[str]) -> list[str]:
        wanted = [word.lower() for word in words]
        return [n for n in names if not wanted or any(word in n.lower() for word in wanted)]

    def on_line(places: Iterable[str]) -> list[str]:
        return [place for place in places if whole or words or place in OF_SPARK]

    jobs = []
    for project in on_line(PROJECTS):
        jobs += _scala(project, line, picked(_names(project, line)), durations)
    for folder in on_line(PYTHON_FOLDERS):
        for number, group in enumerate(grouped(picked(_files(folder)), durations), 1):
            jobs.append(_python(f"{folder.replace('/', '-')}-{number}", line, group, durations))
    if whole:
        from conformance.suites import QUICK

        jobs += [_conformance(suite, line, durations) for suite in picked(QUICK)]
    return sorted(jobs, key=lambda job: -job.seconds)


def quick(durations: Durations, *, line: str) -> list[Job]:
    """Make the jobs of `make quick`."""
    files = [file for folder in chosen.FOLDERS for file in _files(folder)]
    return [
        # The longest first.
        *(_python(name, line, tests, durations) for name, tests in chosen.TESTS.items()),
        *_scala("core", line, _names("core", line), durations),
        *_scala("provider", line, list(chosen.SUITES), durations),
        _python("without-spark", line, files, durations),
    ]


def _names(project: str, line: str) -> list[str]:
    return (test_process(project, line) / "names").read_text().splitlines()


def _files(folder: str) -> list[str]:
    return sorted(str(file.relative_to(ROOT)) for file in (ROOT / folder).glob("test_*.py"))


def grouped(suites: Iterable[str], durations: Durations) -> list[list[str]]:
    """Put suites together, each into the first group that has room, the longest first."""
    seconds = {suite: durations.of(suite, UNKNOWN_S) for suite in suites}
    groups: list[list[str]] = []
    for suite in sorted(seconds, key=lambda s: (-seconds[s], s)):
        for group in groups:
            if sum(seconds[other] for other in group) + seconds[suite] <= SHARED_S:
                group.append(suite)
                break
        else:
            groups.append([suite])
    return groups


def test_process(project: str, line: str) -> Path:
    """Folder in which sbt has left how suites of a project are run."""
    return ROOT / PROJECTS[project] / f"target/spark-{line}/tests"


def _scala(project: str, line: str, suites: Sequence[str], durations: Durations) -> list[Job]:
    options = test_process(project, line) / "options"
    # Only the provider's suites start sessions.
    is_archived = project == "provider"
    flags = archives.flags(archives.provider(line, ARCHIVES)) if is_archived else []

    def job(number: int, group: list[str]) -> Job:
        def command(results: Path, own: Path) -> list[str]:
            home = own / "home"
            picked = [part for suite in group for part in ("-s", suite)]
            return [
                "java",
                f"@{options}",
                *flags,
                f"-Djava.io.tmpdir={own / 'tmp'}",
                f"-Duser.home={home}",
                f"-Dspark.test.home={home}",
                f"-Dstatemark.test.log={results.parent / 'unit-tests.log'}",
                *("org.scalatest.tools.Runner", "-oDFW", "-u", str(results)),
                *picked,
            ]

        return Job(
            name=f"{project}-{number}",
            suites=tuple(group),
            seconds=sum(durations.of(suite, UNKNOWN_S) for suite in group),
            command=command,
            cwd=ROOT / PROJECTS[project],
        )

    groups = grouped(suites, durations)
    return [job(number, group) for number, group in enumerate(groups, 1)]


def _python(name: str, line: str, tests: Sequence[str], durations: Durations) -> Job:
    """Make a job of files, or of single tests in them."""
    files = tuple(dict.fromkeys(test.split("::")[0] for test in tests))

    def command(results: Path, own: Path) -> list[str]:
        options = ["-c", "python/pyproject.toml", "--rootdir", ".", "-p", "no:cacheprovider"]
        options += ["--basetemp", str(own / "pytest"), "--color", "no"]
        options += ["--junitxml", str(results / "pytest.xml")]
        return [sys.executable, "-m", "pytest", *options, *tests]

    flags = [archives.SHORT_LIVED, *archives.flags(archives.pyspark(line, ARCHIVES))]
    return Job(
        name=name,
        suites=files,
        seconds=sum(durations.of(file, UNKNOWN_S) for file in files),
        command=command,
        environment={"SPARK_SUBMIT_OPTS": " ".join(flags)},
    )


def _conformance(suite: str, line: str, durations: Durations) -> Job:
    short = re.sub(r".*\.", "", suite)

    def command(results: Path, own: Path) -> list[str]:
        options = ["--quick", "--jobs", "1", "--junit", str(results / "conformance.xml")]
        options += ["--folder", str(ROOT / f"jvm/conformance/target/suites-{line}")]
        return [sys.executable, "-m", "conformance", short, *options, "--out", str(own / "out")]

    return Job(
        name=f"conformance-{short}",
        suites=(suite,),
        seconds=durations.of(suite, UNKNOWN_S),
        command=command,
        environment={"PYTHONPATH": str(ROOT / "tests")},
    )
