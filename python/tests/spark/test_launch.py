"""`configure` against real sessions: which jars reach the driver, and which the executors.

Each test starts its own process, for a class path is fixed when the virtual machine starts. The
process prints what the driver's class loader finds and what the executors are told; each
jar has a file that carries its name, ours beside the plugin, which Spark loads as it starts.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import textwrap
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyspark
import pytest

import statemark

pytestmark = pytest.mark.spark

LINE = ".".join(pyspark.__version__.split(".")[:2])
#: Spark refuses real-time queries beside another provider than its own.
REFUSES = [int(part) for part in LINE.split(".")] >= [4, 3]
OURS = f"statemark-spark_{LINE}_2.13-{statemark.__version__}"

PRELUDE = """
import json, statemark
from pyspark.sql import SparkSession

def delta(builder):
    # What delta's configure_spark_with_delta_pip does, with another artifact.
    return builder.config("spark.jars.packages", "org.example:package:1.0")

def new():
    return SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")

def report(spark, names):
    sc = spark.sparkContext
    listed = sc._jsc.sc().listJars()
    uris = [listed.apply(i) for i in range(listed.size())]
    loader = sc._jvm.org.apache.spark.util.Utils.getContextOrSparkClassLoader()
    found = [name for name in names if loader.getResource(name + ".txt") is not None]
    conf = dict(sc.getConf().getAll())
    print("REPORT" + json.dumps({"executors": uris, "driver": found, "conf": conf}))
"""


@dataclass
class Job:
    """Runs scripts against a copy of the package, its jar marked with a file."""

    directory: Path
    env: dict[str, str] = field(default_factory=dict)

    def run(self, script: str, *, command: tuple[str, ...] = (sys.executable,)) -> str:
        file = self.directory / "job.py"
        file.write_text(PRELUDE + textwrap.dedent(script))
        done = subprocess.run(
            [*command, str(file)],
            env=self.env,
            cwd=self.directory,
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def jars(self, script: str, **options: Any) -> tuple[list[str], list[str]]:
        """Return the names of the jars that the executors and the driver have."""
        report = self.report(script, **options)
        executors = [uri.rsplit("/", 1)[-1].removesuffix(".jar") for uri in report["executors"]]
        assert len(set(executors)) == len(executors)
        return sorted(executors), sorted(report["driver"])

    def report(self, script: str, **options: Any) -> dict[str, Any]:
        names = ["user", "submit", "default", "package", OURS]
        output = self.run(textwrap.dedent(script) + f"\nreport(spark, {names})\n", **options)
        lines = [line for line in output.splitlines() if line.startswith("REPORT")]
        parsed: dict[str, Any] = json.loads(lines[-1].removeprefix("REPORT"))
        return parsed

    def defaults(self, text: str) -> None:
        file = Path(self.env["SPARK_CONF_DIR"]) / "spark-defaults.conf"
        file.parent.mkdir(exist_ok=True)
        with file.open("a") as out:
            out.write(text + "\n")

    def submit_args(self, text: str) -> None:
        self.env["PYSPARK_SUBMIT_ARGS"] = text + " pyspark-shell"


@pytest.fixture
def job(tmp_path: Path, make_jar: Callable[..., Path]) -> Job:
    package = Path(statemark.__file__).parent
    copy = tmp_path / "python" / "statemark"
    shutil.copytree(package, copy, ignore=shutil.ignore_patterns("jars", "__pycache__"))
    (copy / "jars").mkdir()
    ours = shutil.copy(package / "jars" / f"{OURS}.jar", copy / "jars")
    with zipfile.ZipFile(ours, "a") as jar:
        jar.writestr(f"{OURS}.txt", OURS)
    for name in ("user", "submit", "default"):
        make_jar(tmp_path / f"{name}.jar")
    env = {
        **os.environ,
        # On the class path, where an archive of Spark's classes fits behind what is not there.
        "SPARK_CONF_DIR": str(tmp_path / "conf"),
        "PYTHONPATH": str(tmp_path / "python"),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    return Job(tmp_path, env)


@pytest.fixture
def _package(job: Job, make_jar: Callable[..., Path]) -> None:
    """Put org.example:package:1.0 where Spark's resolver looks before any network."""
    ivy = job.directory / "ivy"
    job.defaults(f"spark.jars.ivy {ivy}")
    release = ivy / "local" / "org.example" / "package" / "1.0"
    make_jar(release / "jars" / "package.jar")
    confs = ("default", "compile", "runtime", "master")
    (release / "ivys").mkdir()
    (release / "ivys" / "ivy.xml").write_text(
        '<ivy-module version="2.0"><info organisation="org.example" module="package"'
        ' revision="1.0" status="release"/><configurations>'
        + "".join(f'<conf name="{conf}"/>' for conf in confs)
        + '</configurations><publications><artifact name="package" type="jar" ext="jar"'
        f' conf="{",".join(confs)}"/></publications></ivy-module>'
    )


PACKAGE = "org.example_package-1.0"  # what the resolver calls its copy


def test_the_jar_reaches_driver_and_executors(job: Job) -> None:
    report = job.report("""
        wanted = {"max_uncommitted_bytes": "64m", "isolation_level": "read_uncommitted"}
        builder = statemark.configure(new(), **wanted)
        spark = builder.getOrCreate()
    """)
    assert [uri.rsplit("/", 1)[-1] for uri in report["executors"]] == [f"{OURS}.jar"]
    assert report["driver"] == [OURS]
    prefix = "spark.sql.streaming.stateStore."
    ours = {key: value for key, value in report["conf"].items() if key.startswith(prefix)}
    assert ours == {
        prefix + "providerClass": "statemark.spark.StatemarkStateStoreProvider",
        prefix + "statemark.packageVersion": statemark.__version__,
        prefix + "statemark.maxUncommittedBytes": "64m",
        prefix + "statemark.isolationLevel": "READ_UNCOMMITTED",
        **({prefix + "statemark.allowRealTime": "true"} if REFUSES else {}),
    }


def test_jars_that_the_builder_gets_afterwards_stay(job: Job) -> None:
    user = f'config("spark.jars", "{job.directory}/user.jar")'
    both = sorted(["user", OURS])
    started = f"spark = statemark.configure(new()).{user}.getOrCreate()"
    assert job.jars(started) == (both, both)


@pytest.mark.parametrize(
    "args", ["--jars=@sub*.jar", "--conf spark.jars=@submit.jar", "--properties-file @submit.conf"]
)
def test_jars_of_submit_args_stay(job: Job, args: str) -> None:
    file = job.directory / "submit.conf"
    file.write_text(f"spark.jars {job.directory}/submit.jar\n")
    job.submit_args(args.replace("@", f"{job.directory}/"))
    both = sorted(["submit", OURS])
    assert job.jars("""
        import os
        before = os.environ["PYSPARK_SUBMIT_ARGS"]
        spark = statemark.configure(new()).getOrCreate()
        assert os.environ["PYSPARK_SUBMIT_ARGS"] == before
    """) == (both, both)


@pytest.mark.usefixtures("_package")
def test_jars_of_all_layers_and_packages_stay(job: Job) -> None:
    job.defaults(f"spark.jars {job.directory}/default.jar")
    job.submit_args(f"--jars {job.directory}/submit.jar --packages org.example:package:1.0")
    executors, driver = job.jars(f"""
        builder = new().config("spark.jars", "{job.directory}/user.jar")
        spark = statemark.configure(builder).getOrCreate()
    """)
    assert executors == sorted(["user", "submit", "default", PACKAGE, OURS])
    assert driver == sorted(["user", "submit", "default", "package", OURS])


@pytest.mark.usefixtures("_package")
@pytest.mark.parametrize("nested", ["statemark.configure(delta(new()))",
                                    "delta(statemark.configure(new()))"])  # fmt: skip
def test_helpers_that_set_packages_work_before_and_after(job: Job, nested: str) -> None:
    executors, driver = job.jars(f"spark = {nested}.getOrCreate()")
    assert executors == sorted([PACKAGE, OURS])
    assert driver == sorted(["package", OURS])


def test_a_configured_session_can_be_asked_for_again(job: Job) -> None:
    executors, driver = job.jars("""
        first = statemark.configure(new()).getOrCreate()
        spark = statemark.configure(new(), isolation_level="READ_UNCOMMITTED").getOrCreate()
        assert spark is first
        key = "spark.sql.streaming.stateStore.statemark.isolationLevel"
        assert spark.conf.get(key) == "READ_UNCOMMITTED"
        spark.stop()
        spark = statemark.configure(new()).getOrCreate()
    """)
    assert (executors, driver) == ([OURS], [OURS])


def test_a_running_session_without_the_jar_is_refused(job: Job) -> None:
    job.run("""
        spark = new().getOrCreate()
        for state in ("session", "Java virtual machine"):
            try:
                statemark.configure(new())
            except statemark.SessionRunningError as error:
                assert error.problem.startswith(f"a Spark {state} already runs"), error
            else:
                raise AssertionError(state)
            spark.stop()
    """)


def test_reads_in_a_session_without_the_jar_say_so(job: Job) -> None:
    out = job.run("""
        spark = new().getOrCreate()
        for read in (statemark.live, statemark.position, lambda query: statemark.get(query, 1)):
            try:
                read("counts")
            except statemark.LiveReadError as error:
                print("ERROR", error.reason)
        """)
    assert out.count("ERROR the running Spark has no plugin of Statemark's") == 3


def test_a_session_that_starts_in_between_is_refused(job: Job) -> None:
    job.run("""
        builder = statemark.configure(new())
        new().getOrCreate()
        try:
            builder.getOrCreate()
        except statemark.SessionRunningError:
            pass
        else:
            raise AssertionError
    """)


def _spark_submit(*flags: str) -> tuple[str, ...]:
    return (str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), *flags)


def test_flags_of_the_command_work_in_spark_submit(job: Job) -> None:
    job.defaults(f"spark.jars {job.directory}/default.jar")
    printed = subprocess.run(
        [sys.executable, "-m", "statemark", "conf", "--max-uncommitted-bytes", "64m"],
        env=job.env, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert printed.stdout.count("\n") == 1
    report = job.report(
        "spark = new().getOrCreate()", command=_spark_submit(*printed.stdout.split())
    )
    assert sorted(report["driver"]) == sorted(["default", OURS])
    prefix = "spark.sql.streaming.stateStore"
    assert report["conf"][f"{prefix}.statemark.maxUncommittedBytes"] == "64m"
    assert report["conf"]["spark.sql.streaming.stateStore.providerClass"].endswith(
        ".StatemarkStateStoreProvider"
    )


@pytest.mark.usefixtures("_package")
def test_under_spark_submit_its_jars_stay(job: Job) -> None:
    ours = f"{job.directory}/python/statemark/jars/{OURS}.jar"
    flags = _spark_submit("--jars", f"{job.directory}/submit.jar,{ours}",
                          "--packages", "org.example:package:1.0")  # fmt: skip
    executors, driver = job.jars(
        f"""
        builder = new().config("spark.jars", "{job.directory}/user.jar")
        spark = statemark.configure(builder).getOrCreate()
        """,
        command=flags,
    )
    assert executors == sorted(["user", "submit", PACKAGE, OURS])
    # The launcher was done before the script ran, so its class path lacks the builder's.
    assert driver == sorted(["submit", "package", OURS])


def test_under_spark_submit_without_the_jar_is_refused(job: Job) -> None:
    job.run(
        """
        try:
            statemark.configure(new())
        except statemark.SessionRunningError as error:
            assert "statemark conf" in error.remedy
        else:
            raise AssertionError
        """,
        command=_spark_submit(),
    )
