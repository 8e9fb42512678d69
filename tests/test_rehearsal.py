"""What the rehearsal of a release covers, and what it says of that which it leaves out."""

from __future__ import annotations

import zipfile
from typing import TYPE_CHECKING

import pytest
from rehearsal import __main__ as rehearsal
from rehearsal import artifacts, environments
from rehearsal.environments import PYTHONS, RELEASES, StepError
from support.versions import renamed

if TYPE_CHECKING:
    from pathlib import Path


def test_every_python_and_every_line_has_a_pair() -> None:
    pairs = rehearsal.plan(PYTHONS, list(RELEASES))
    assert {python for python, _ in pairs} == set(PYTHONS)
    assert {line for _, line in pairs} == set(RELEASES)
    assert pairs[0] == ("3.11", next(iter(RELEASES)))
    assert len(set(pairs)) == len(pairs)


@pytest.mark.parametrize(
    ("results", "code"),
    [
        (["passed", "passed"], rehearsal.PASSED),
        (["passed", "NOT DONE"], rehearsal.PARTIAL),
        (["FAILED", "NOT DONE"], rehearsal.FAILED),
    ],
)
def test_a_rehearsal_that_leaves_something_out_is_partial(results: list[str], code: int) -> None:
    report = rehearsal.Report([(f"step {n}", r, 1.0, "") for n, r in enumerate(results)])
    assert report.code() == code


def test_a_missing_interpreter_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(rehearsal, "interpreter", lambda version: None)
    report = rehearsal.Report()
    rehearsal._users(report, ["3.12"], ["4.2"])
    assert report.code() == rehearsal.PARTIAL
    assert "Python 3.12: NOT DONE, no such interpreter" in capsys.readouterr().out
    assert report.table().startswith("Python 3.12  NOT DONE")


def test_a_step_that_fails_says_what_was_printed(capsys: pytest.CaptureFixture[str]) -> None:
    report = rehearsal.Report()
    assert not report.step("a step", lambda: environments.run("sh", "-c", "echo said; exit 3"))
    assert "said" in capsys.readouterr().out
    assert report.code() == rehearsal.FAILED


def test_a_shim_that_starts_nothing_is_no_interpreter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shim = tmp_path / "python3.12"
    shim.write_text("#!/bin/sh\nexit 127\n")
    shim.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    for name in ("PYENV_ROOT", "UV_PYTHON_INSTALL_DIR"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    assert environments.interpreter("3.12") is None


def test_a_jar_that_bundles_something_is_refused(tmp_path: Path) -> None:
    jar = tmp_path / "statemark-spark_4.2_2.13-1.0.0.jar"
    with zipfile.ZipFile(jar, "w") as archive:
        archive.writestr("META-INF/MANIFEST.MF", "Implementation-Version: 1.0.0\r\n")
        for name in ("LICENSE", "NOTICE"):
            archive.write(environments.ROOT / name, f"META-INF/{name}")
        archive.writestr("org/acme/Library.class", b"")
    with pytest.raises(StepError, match=r"bundles .*org/acme/Library\.class"):
        artifacts._jar("4.2", jar.read_bytes())
    with zipfile.ZipFile(renamed(jar, "0.9.0", tmp_path / "other")) as archive:
        assert archive.read("META-INF/MANIFEST.MF") == b"Implementation-Version: 0.9.0\r\n"
