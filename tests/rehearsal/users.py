"""The steps that a user of a release takes."""

from __future__ import annotations

import json
import re
import shutil
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

from support.versions import renamed

from rehearsal.environments import OUT, RELEASES, ROOT, VERSION, Environment, expect, run

if TYPE_CHECKING:
    from collections.abc import Mapping

DIST = ROOT / "dist"
MAVEN = ROOT / "target/maven"
#: The version that stands for the release before, until there is one.
BEFORE = "0.0.9"
_STORE = "spark.sql.streaming.stateStore"


def installed(python: Path, name: str, line: str, wheels: Path) -> Environment:
    """Install the wheel with its extra in a fresh environment, and ask its command for the jar."""
    environment = Environment.create(python, OUT / name, (DIST, wheels))
    environment.install(f"statemark[pyspark]=={VERSION}", f"pyspark=={line}.*")
    tool = environment.folder / "env/bin/statemark"
    said = environment.run(tool, "--version").strip()
    expect(said == f"statemark {VERSION}", f"statemark --version printed {said!r}")
    jar = environment.run(tool, "jar").strip()
    expect(f"statemark-spark_{line}_2.13-{VERSION}.jar" in jar, f"statemark jar printed {jar!r}")
    expect(str(environment.folder) in jar, f"{jar} is not the environment's")
    environment.run(environment.python, "-m", "pip", "check")
    return environment


def readme(environment: Environment) -> str:
    """Run the README's example as printed, in an empty folder, and check what it shows."""
    example = example_of_readme()
    folder = environment.folder / "empty"
    folder.mkdir()
    shown = environment.run(environment.python, "-c", example, cwd=folder)
    return checked(shown)


def example_of_readme() -> str:
    """Return the first example of the README."""
    example = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    expect(example, "the README has no example")
    assert example is not None
    return example[1]


def checked(shown: str) -> str:
    """Check what the example shows, and return it in a few words."""
    rows = re.findall(r"^\|\s*(\d+)\|\s*(\d+)\|$", shown, re.MULTILINE)
    counts = {int(key): int(count) for key, count in rows}
    expect(set(counts) == set(range(10)) and min(counts.values()) > 0, f"no ten keys:\n{shown}")
    one = re.search(r"^Row\(key=Row\(key=7\), value=Row\(count=(\d+)\)", shown, re.MULTILINE)
    expect(one is not None and int(one[1]) >= counts[7], f"no key 7:\n{shown}")
    return f"{len(counts)} keys, {sum(counts.values())} rows"


def packages(environment: Environment, line: str) -> str:
    """Run a job by `spark-submit --packages`, from the Maven repository, without the package."""
    folder = new_input(environment.folder / "packages")
    coordinates = f"io.statemark:statemark-spark_{line}_2.13:{VERSION}"
    settings = {
        "spark.ui.enabled": "false",
        f"{_STORE}.providerClass": "statemark.spark.StatemarkStateStoreProvider",
        f"{_STORE}.statemark.localDir": str(folder / "local"),
        "spark.plugins": "statemark.spark.StatemarkPlugin",
    }
    flags = [word for key, value in settings.items() for word in ("--conf", f"{key}={value}")]
    submit = environment.folder / "env/bin/spark-submit"
    source = ("--repositories", MAVEN.as_uri(), "--packages", coordinates)
    job = (ROOT / "tests/rehearsal/job.py", folder, "plain")
    environment.run(submit, "--master", "local[2]", *source, *flags, *job)
    check(json.loads((folder / "found.json").read_text()), line=line, batches=1)
    fetched = sorted(path.name for path in (environment.folder / "home").rglob(".ivy2*/jars/*.jar"))
    expect(len(fetched) == 1, f"--packages has fetched {fetched}, the jar alone was expected")
    return coordinates


def upgrade(environment: Environment, line: str) -> str:
    """Run a query by the wheel before, by this one, and by the one before again."""
    folder = new_input(environment.folder / "upgrade")
    before = wheel_before()
    for batch, version in enumerate((BEFORE, VERSION, BEFORE), 1):
        environment.install(f"statemark=={version}", index=(before,))
        add_input(folder, batch)
        check(environment.job(folder), line=line, batches=batch, version=version)
    environment.install(f"statemark=={VERSION}")
    return f"{BEFORE} -> {VERSION} -> {BEFORE}, one checkpoint, one localDir"


def two_versions(environment: Environment) -> str:
    """Start a session with the jar of the version before in front; it is refused in three lines."""
    jar = environment.run(environment.folder / "env/bin/statemark", "jar").strip()
    other = renamed(Path(jar), BEFORE, environment.folder / "other")
    folder = new_input(environment.folder / "versions")
    words = ("env", f"PYSPARK_SUBMIT_ARGS=--driver-class-path {other} pyspark-shell")
    job = (environment.python, ROOT / "tests/rehearsal/job.py", folder, "configure")
    said = environment.run(*words, *job, code=1)
    problem = f"the driver has the jar of Statemark {BEFORE}, and the Python package is {VERSION}"
    expect(re.search(re.escape(problem) + r"\n  reason: .*\n  remedy: ", said), said[-3000:])
    return "refused by name"


def uninstalled(environment: Environment) -> str:
    """Uninstall the package; no file of the environment has its name any more."""
    environment.run(environment.python, "-m", "pip", "uninstall", "-q", "-y", "statemark")
    left = [path for path in (environment.folder / "env").rglob("*") if "statemark" in path.name]
    expect(not left, f"pip uninstall has left {left}")
    shutil.rmtree(environment.folder)  # as large as Spark
    return "nothing left"


def check(found: Mapping[str, object], *, line: str, batches: int, version: str = VERSION) -> None:
    """Check what the job found: counts of all batches, by the jar of a version."""
    wanted = {key: batches * count for key, count in (("a", 3), ("b", 2))}
    expect(found["counts"] == wanted, f"{found['counts']} instead of {wanted}")
    expect(found["versions"] == [version], f"the jar is {found['versions']}, not {version}")
    expect(str(found["spark"]).startswith(f"{line}."), f"Spark is {found['spark']}")
    expect(found["metrics"], "the state was not Statemark's")


def new_input(folder: Path) -> Path:
    """Make the folder of a job, with the lines of one batch."""
    (folder / "in").mkdir(parents=True)
    add_input(folder, 1)
    return folder


def add_input(folder: Path, batch: int) -> None:
    """Add the lines of a batch: three of one key, two of another."""
    (folder / "in" / f"{batch}.txt").write_text("a\na\nb\na\nb\n")


def wheel_before() -> Path:
    """Make the wheel that stands for the release before: the same files under another version."""
    folder = OUT / "before"
    shutil.rmtree(folder, ignore_errors=True)
    sources = folder / "sources"
    (archive,) = DIST.glob("*.tar.gz")
    sources.mkdir(parents=True)
    run("tar", "-xzf", archive, "-C", sources, "--strip-components", "1")
    (sources / "src/statemark/VERSION").write_text(f"{BEFORE}\n")
    jars = sources / "src/statemark/jars"
    for jar in sorted(jars.glob("*.jar")):
        renamed(jar, BEFORE, jars)
        jar.unlink()
    run(build_python(), "-m", "build", "--no-isolation", "--wheel", "--outdir", folder, sources)
    return folder


def build_python() -> Path:
    """Return the interpreter of the project's environment, which has the tools that build."""
    return ROOT / ".venv/bin/python"


def jars_of(wheel: Path) -> dict[str, bytes]:
    """Return the jars in a wheel by the line of Spark."""
    with zipfile.ZipFile(wheel) as archive:
        return {
            line: archive.read(f"statemark/jars/statemark-spark_{line}_2.13-{VERSION}.jar")
            for line in RELEASES
        }
