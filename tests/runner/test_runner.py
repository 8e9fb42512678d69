"""The runner loses no test, and no failure of one."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest
from support.processes import wait_for

from runner import full, report, results, reverted, slots
from runner.durations import Durations
from runner.jobs import FAILED_SUITES, SHARED_S, Job, grouped
from runner.results import FAILED, PASSED, SKIPPED, Case
from runner.slots import Slots

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

SCALATEST = """\
<testsuite name="statemark.ASuite" time="9.0">
<testcase name="one" classname="statemark.ASuite" time="2.5"></testcase>
<testcase name="two" classname="statemark.ASuite" time="1.5"><failure message="no">at A</failure>
</testcase>
</testsuite>"""
PYTEST = """\
<testsuites><testsuite name="pytest" time="30.0">
<testcase classname="tests.e2e.test_a" name="test_one[v1]" time="1.0"/>
<testcase classname="tests.e2e.test_a.TestIt" name="test_two" time="2.0">
<skipped message="needs Linux">tests/e2e/test_a.py:3: needs Linux</skipped></testcase>
<testcase classname="" name="tests.e2e.test_ab" time="0.5"><error message="broke"/></testcase>
</testsuite></testsuites>"""


def job(name: str, code: str, suites: tuple[str, ...] = ("a",), **environment: str) -> Job:
    """Make a process that runs some Python; `results` and `own` are its folders."""

    def command(results: Path, own: Path) -> list[str]:
        head = (
            f"from pathlib import Path\nresults, own = Path({str(results)!r}), Path({str(own)!r})"
        )
        return [sys.executable, "-c", f"{head}\n{code}"]

    return Job(name=name, suites=suites, seconds=1, command=command, environment=environment)


def leaves(suite: str, test: str = "it") -> str:
    xml = (
        f'<testsuite name="{suite}" time="1"><testcase classname="{suite}" name="{test}" time="1"/>'
    )
    return f"(results / 'a.xml').write_text('{xml}</testsuite>')"


# ---- plan


@pytest.mark.parametrize(
    ("seconds", "groups"),
    [
        ({}, []),
        ({"a": 10, "b": 70, "c": 60}, [["b", "a"], ["c"]]),
        ({"a": 500, "b": 1, "c": 300}, [["a"], ["c"], ["b"]]),
        ({"a": 1, "b": 1}, [["a", "b"]]),
    ],
)
def test_suites_share_a_process_as_long_as_they_are_short(
    seconds: Mapping[str, float], groups: list[list[str]]
) -> None:
    assert grouped(seconds, Durations(suites=seconds)) == groups


def test_every_suite_is_in_one_group() -> None:
    seconds = {f"s{i}": float(i * 37 % 101) for i in range(200)}
    groups = grouped([*seconds, "unknown"], Durations(suites=seconds))
    assert sorted(name for group in groups for name in group) == sorted([*seconds, "unknown"])
    assert all(sum(seconds.get(n, 0) for n in g) <= SHARED_S for g in groups if len(g) > 1)


# ---- results


def test_results_of_scalatest(tmp_path: Path) -> None:
    (tmp_path / "TEST-statemark.ASuite.xml").write_text(SCALATEST)
    one, two, rest = results.read(tmp_path, ["statemark.ASuite"])
    assert one == Case(suite="statemark.ASuite", name="one", seconds=2.5)
    assert (two.name, two.state, two.message) == ("two", FAILED, "no\nat A")
    assert (rest.name, rest.seconds) == ("", 5.0)


def test_results_of_pytest_belong_to_their_files(tmp_path: Path) -> None:
    (tmp_path / "pytest.xml").write_text(PYTEST)
    files = ["tests/e2e/test_a.py", "tests/e2e/test_ab.py"]
    cases = results.read(tmp_path, files)
    assert [(case.suite, case.name, case.state) for case in cases] == [
        (files[0], "test_one[v1]", PASSED),
        (files[0], "test_two", SKIPPED),
        (files[1], "tests.e2e.test_ab", FAILED),
    ]
    assert cases[1].message.startswith("needs Linux")


def test_a_suite_that_left_nothing_has_failed(tmp_path: Path) -> None:
    (tmp_path / "TEST-statemark.ASuite.xml").write_text(SCALATEST)
    last = results.read(tmp_path, ["statemark.ASuite", "statemark.BSuite"])[-1]
    assert (last.suite, last.state) == ("statemark.BSuite", FAILED)


# ---- slots


def test_a_job_has_folders_of_its_own(tmp_path: Path) -> None:
    show = "import os, tempfile\n(own / 'cache' / 'x').touch(exist_ok=False)\n"
    show += "names = [tempfile.gettempdir(), os.environ['XDG_CACHE_HOME'], os.environ['HOME']]\n"
    show += "(results.parent / 'seen').write_text(' '.join([*names, os.environ['MINE']]))\n"
    jobs = [job(name, show + leaves("a"), MINE=name) for name in ("one", "two")]
    outcomes = Slots(2, tmp_path).run(jobs)
    assert all(not outcome.failed for outcome in outcomes)
    seen = {name: (tmp_path / name / "seen").read_text().split() for name in ("one", "two")}
    assert not set(seen["one"]) & set(seen["two"])
    assert [path.rsplit("/", 2)[1:] for path in seen["two"][:3]] == [
        ["two", "tmp"],
        ["two", "cache"],
        ["two", "home"],
    ]


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (f"{leaves('a')}\nraise SystemExit(3)", "exit code 3"),
        ("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)", "left no result"),
        ("pass", "left no result"),
    ],
    ids=["exit code", "killed", "nothing left"],
)
def test_a_job_that_ends_badly_has_failed(tmp_path: Path, code: str, message: str) -> None:
    (outcome,) = Slots(1, tmp_path).run([job("bad", code)])
    assert [message in case.message for case in outcome.failed] == [True]


def test_what_a_failed_job_wrote_is_kept(tmp_path: Path) -> None:
    write = "(own / 'tmp' / 'log').write_text('here')\nimport os\nos.mkfifo(own / 'tmp' / 'pipe')\n"
    write += "print('said')\nraise SystemExit(1)"
    (outcome,) = Slots(1, tmp_path).run([job("bad", write)])
    assert (outcome.log.parent / "left/tmp/log").read_text() == "here"
    assert "said" in outcome.log.read_text()


def test_a_job_that_hangs_is_cut_off_with_all_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slots, "LIMIT_S", 1)
    hang = f"{leaves('a')}\nimport subprocess, signal\n"
    hang += "signal.signal(signal.SIGQUIT, signal.SIG_IGN)\n"
    hang += "child = subprocess.Popen(['sleep', '1000'])\n"
    hang += "(results.parent / 'child').write_text(str(child.pid))\nchild.wait()"
    (outcome,) = Slots(1, tmp_path).run([job("hangs", hang)])
    assert ["did not end" in case.message for case in outcome.failed] == [True]
    child = int((tmp_path / "hangs/child").read_text())
    # It was killed with the others, and the system may take a moment.
    wait_for("the end of what it started", lambda: not _lives(child))


def _lives(pid: int) -> bool:
    from pathlib import Path

    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


# ---- report


STARVED = "Python worker failed to connect back."


def test_a_job_that_a_busy_machine_starved_runs_once_more_alone(tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    code = f"""
failed = '' if Path({str(seen)!r}).exists() else '<failure message="{STARVED}">at A</failure>'
Path({str(seen)!r}).touch()
test = f'<testcase classname="a" name="it" time="1">{{failed}}</testcase>'
(results / 'a.xml').write_text(f'<testsuite name="a" time="1">{{test}}</testsuite>')"""
    (outcome,) = Slots(1, tmp_path).run([job("busy", code)])
    assert outcome.failed == []
    assert outcome.job.name == "busy-again"


def test_another_failure_beside_it_is_not_forgiven(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    tests = "".join(
        f'<testcase classname="a" name="{why}" time="1"><failure message="{why}"/></testcase>'
        for why in (STARVED, "wrong rows")
    )
    code = f"""
with Path({str(runs)!r}).open('a') as file: file.write('x')
(results / 'a.xml').write_text('<testsuite name="a" time="1">{tests}</testsuite>')"""
    (outcome,) = Slots(1, tmp_path).run([job("bad", code)])
    assert (len(outcome.failed), runs.read_text()) == (2, "x")


def test_the_last_line_counts_tests(tmp_path: Path) -> None:
    suites = ("tests/e2e/test_a.py", "statemark.ASuite", "tests/e2e/test_ab.py")
    write = f"(results / 'a.xml').write_text('''{SCALATEST}''')\n"
    write += f"(results / 'b.xml').write_text('''{PYTEST}''')"
    outcomes = Slots(1, tmp_path).run([job("both", write, suites)])
    lines = report.table(outcomes, seconds=60, busy=0.9).splitlines()
    assert lines[-1] == "2 passed, 2 failed, 1 skipped"
    assert any(line.startswith("FAILED statemark.ASuite: two") for line in lines)
    assert any(line.split() == ["1", "needs", "Linux"] for line in lines)


def test_durations_read_back(tmp_path: Path) -> None:
    cases = [
        Case(suite="a", name="long", seconds=31.04),
        Case(suite="a", name="short", seconds=0.2),
        Case(suite="a", name="", seconds=5),
    ]
    Durations.of_run(cases, seconds=90).write(tmp_path / "d.json")
    found = Durations.read(tmp_path / "d.json")
    assert found.suites == {"a": 36.2}
    assert found.tests == {"a": {"long": 31.0}}
    assert found.minutes == 1.5
    assert Durations.read(tmp_path / "none.json") == Durations()


# ---- parts of make test-full


_PART = """\
if [ -z "$1" ]; then printf 'ASuite\\ntests/test_b.py\\n' > {failed}; exit 1; fi
test "$1" = "ONLY=ASuite tests/test_b.py" && test -e {mended}
"""


def test_what_failed_of_a_part_runs_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mended, script = tmp_path / "mended", tmp_path / "part.sh"
    script.write_text(_PART.format(failed=tmp_path / FAILED_SUITES, mended=mended))
    commit = "first"
    monkeypatch.setattr(full, "OUT", tmp_path)
    monkeypatch.setattr(full, "STAMPS", tmp_path / "stamps.json")
    monkeypatch.setattr(full, "UNFINISHED", tmp_path / "unfinished.json")
    monkeypatch.setattr(full, "PARTS", {"crash": full.Part(what="a part", command=f"sh {script}")})
    monkeypatch.setattr(full, "_git", lambda *words: commit if words[0] == "rev-parse" else "")

    assert full.run("crash", again=True) == 1  # it has not run yet
    assert full.run("crash") == 1
    commit = "second"
    assert full.main(["--again"]) == 1
    assert full.read(full.STAMPS) == {}
    mended.touch()
    assert full.main(["--again"]) == 0
    stamp = full.read(full.STAMPS)["crash"]
    assert stamp["commit"] == "first"
    assert stamp["again"]["commit"] == "second"
    assert stamp["again"]["suites"] == ["ASuite", "tests/test_b.py"]
    assert full.run("crash", again=True) == 1  # nothing is left
    (line,) = full.status()
    assert line.endswith("up to date; 2 suites again at second")


# ---- what was mended, taken back


@pytest.mark.parametrize(
    ("log", "code"),
    [
        ("FAULT, seed 7:\n…OutOfMemoryError…\nAgain: …", 0),
        ("40 histories", 1),
        ("FAULT, seed 7:\nNullPointerException\nAgain: …", 2),
    ],
)
def test_only_the_fault_that_a_patch_brings_back_counts_as_found(
    log: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert reverted.verdict(reverted.FAULTS["stress"]["2"], log, 90.0) == code
    if code == 0:
        assert "seed 7, 1.5 minutes" in capsys.readouterr().out


def test_a_fault_without_a_patch_is_no_success(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reverted, "ROOT", tmp_path)
    assert reverted.main(["stress", "1"]) == 2
