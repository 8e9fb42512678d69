"""`statemark demo` on few keys: both sides, the failure on purpose, the restart, the verdict."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from statemark import cli, demo
from support.processes import SMALL_JVM
from support.session import ROOT


def test_the_demo_ends_in_a_verdict(tmp_path: Path) -> None:
    # It leaves Spark's variables aside, and with them what makes the JVMs of tests start sooner.
    java = {"JDK_JAVA_OPTIONS": SMALL_JVM}
    done = subprocess.run(
        [sys.executable, "-m", "statemark", "demo", "--keys", "1200"],
        cwd=tmp_path,
        env=os.environ | java | {"TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    verdict = done.stdout[done.stdout.index("VERDICT") :]
    rows = re.findall(r"each key once", verdict)
    assert len(rows) == 2, verdict
    assert re.search(r"read while it ran +right", verdict), verdict
    assert len(re.findall(r"times as fast", verdict)) == 2, verdict
    assert done.stdout.count("a task failed on purpose") == 2, done.stdout
    assert not list(tmp_path.iterdir()), "what it wrote is deleted"


@pytest.mark.parametrize("keys", ["-1", "0", "5", "2000000000"])
def test_what_cannot_run_is_said_before_anything_starts(
    keys: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["demo", "--keys", keys]) == 2
    assert f"statemark: --keys is {keys}\n" in capsys.readouterr().err


def test_nothing_of_a_side_is_left(tmp_path: Path) -> None:
    """A side's JVM outlives its Python, and ignores Ctrl-C."""
    ready = tmp_path / "ready"
    jvm = f"import pathlib, time; pathlib.Path({str(ready)!r}).touch(); time.sleep(600)"
    code = (
        "import os, pathlib, subprocess, sys\n"
        f"jvm = subprocess.Popen([sys.executable, '-c', {jvm!r}])\n"
        "print(jvm.pid, file=sys.stderr, flush=True)\n"
        f"while not pathlib.Path({str(ready)!r}).exists():\n"
        "    pass\n"
        "os._exit(7)\n"
    )
    with (tmp_path / "errors").open("w+") as errors:
        assert demo._run([sys.executable, "-c", code], errors, tmp_path) == 7
        errors.seek(0)
        pid = int(errors.read())
    stat = Path(f"/proc/{pid}/stat")
    assert not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z"


_DEFAULTS = {"SIGINT": "signal.default_int_handler"}


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP", "SIGINT"])
def test_a_signal_leaves_no_folder(name: str, tmp_path: Path) -> None:
    code = (
        "import os, signal, sys\n"
        # Whoever runs the tests may ignore it, as nohup and a shell's background do.
        f"signal.signal(signal.{name}, {_DEFAULTS.get(name, 'signal.SIG_DFL')})\n"
        "from statemark import cli, demo\n"
        "def side(name, work, keys):\n"
        "    work.mkdir()\n"
        f"    os.kill(os.getpid(), signal.{name})\n"
        "    signal.pause()\n"
        "demo._side = side\n"
        "sys.exit(cli.main(['demo', '--keys', '1200']))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (128 + getattr(signal, name), "")
    assert not list(tmp_path.iterdir())


def test_a_reader_that_goes_away_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo, "_run", lambda *_: demo.NOBODY_READS)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(BrokenPipeError):
        demo.run()
    assert not list(tmp_path.iterdir())
    (tmp_path / "a b").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "a b"))
    assert cli.main(["demo"]) == 2
    assert "statemark: the temporary folder is " in capsys.readouterr().err
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    assert cli.main(["demo"]) == 2
    assert "statemark: the demo cannot write its files\n" in capsys.readouterr().err


def test_what_configures_spark_does_not_configure_the_demo(tmp_path: Path) -> None:
    user = {
        "SPARK_HOME": "/spark",
        "SPARK_CONF_DIR": "/mine",
        "SPARK_LOCAL_DIRS": "/mine",
        "PYSPARK_SUBMIT_ARGS": "--master yarn",
        "PYSPARK_GATEWAY_PORT": "1",
        "HADOOP_CONF_DIR": "/mine",
        "PYTHONPATH": "relative",
    }
    found = demo._environment(user, tmp_path)
    assert found.pop("SPARK_CONF_DIR") == str(tmp_path / "conf")
    assert not list((tmp_path / "conf").iterdir())
    # The side works in a folder of its own.
    assert found.pop("PYTHONPATH").split(os.pathsep)[1:] == [str(Path.cwd() / "relative")]
    assert found == {"SPARK_HOME": "/spark", "TMPDIR": str(tmp_path)}


def test_the_flights_of_make_demo_can_be_read(tmp_path: Path) -> None:
    """Their package needs what newer build tools have not."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", "import flights.data"],
        env=os.environ | {"PYTHONPATH": str(ROOT / "demo")},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
