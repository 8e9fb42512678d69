from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyspark
import pytest

import statemark
from statemark import cli
from statemark.cli import main
from statemark.commands import COMMANDS
from statemark.usage import Parser

PREFIX = "spark.sql.streaming.stateStore."
PROVIDER = f"{PREFIX}providerClass=statemark.spark.StatemarkStateStoreProvider"
PLUGIN = (
    "spark.plugins=statemark.spark.StatemarkPlugin"
    f" --conf {PREFIX}statemark.packageVersion={statemark.__version__}"
)
#: Spark refuses real-time queries beside another provider than its own.
REFUSES = [int(part) for part in pyspark.__version__.split(".")[:2]] >= [4, 3]
ALLOW = f" --conf {PREFIX}statemark.allowRealTime=true" if REFUSES else ""


def _defaults(text: str) -> None:
    (Path(os.environ["SPARK_CONF_DIR"]) / "spark-defaults.conf").write_text(text)


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--version"])
    assert caught.value.code == 0
    assert capsys.readouterr().out == f"statemark {statemark.__version__}\n"


def test_jar(bundled: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["jar"]) == 0
    assert capsys.readouterr().out == bundled + "\n"
    assert main(["jar", "--spark-version", "4.9.1"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(
        f"statemark: Statemark {statemark.__version__} has no jar for Spark 4.9.1\n  reason: "
    )


def test_conf_prints_one_line_of_plain_words(
    bundled: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["conf"]) == 0
    assert capsys.readouterr().out == f"--jars {bundled} --conf {PROVIDER} --conf {PLUGIN}{ALLOW}\n"
    arguments = ["--local-dir", "/d", "--isolation-level", "read_uncommitted"]
    assert main(["conf", *arguments, "--max-uncommitted-bytes", "64M"]) == 0
    out = capsys.readouterr().out
    assert out == (
        f"--jars {bundled} --conf {PROVIDER} --conf {PLUGIN}{ALLOW}"
        f" --conf {PREFIX}statemark.isolationLevel=READ_UNCOMMITTED"
        f" --conf {PREFIX}statemark.maxUncommittedBytes=64m"
        f" --conf {PREFIX}statemark.localDir=/d\n"
    )
    assert out.split() == shlex.split(out)


def test_json_begins_with_the_version_of_its_keys(
    bundled: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for words, key in ((["conf"], "settings"), (["jar"], "jar")):
        assert main([*words, "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert next(iter(found)) == "schema"
        assert found["schema"] == 1
        assert bundled in str(found[key])


def test_every_command_that_reports_has_json() -> None:
    for command in COMMANDS:
        parser = Parser()
        command.add_arguments(parser)
        assert "--json" in parser.format_help(), command.name


def test_a_negative_limit_needs_no_quotes(bundled: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["conf", "--max-uncommitted-bytes", "-1"]) == 0
    assert capsys.readouterr().out.endswith("statemark.maxUncommittedBytes=-1\n")


def test_jars_of_spark_defaults_and_of_the_caller_are_kept(
    bundled: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own, low = tmp_path / "own.jar", tmp_path / "low.jar"
    own.touch()
    low.touch()
    _defaults(f"spark.jars {low}")
    assert main(["conf", "--jars", f"{own},{low}"]) == 0
    assert capsys.readouterr().out.startswith(f"--jars {own},{low},{bundled} --conf ")


def test_plugins_of_spark_defaults_are_kept(
    bundled: str, capsys: pytest.CaptureFixture[str]
) -> None:
    _defaults("spark.plugins statemark.spark.StatemarkPlugin, org.other.Plugin")
    assert main(["conf"]) == 0
    wanted = "spark.plugins=org.other.Plugin,statemark.spark.StatemarkPlugin"
    assert capsys.readouterr().out == (
        f"--jars {bundled} --conf {PROVIDER} --conf {PLUGIN}{ALLOW}\n".replace(
            "spark.plugins=statemark.spark.StatemarkPlugin", wanted
        )
    )


def test_another_jar(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], make_jar: Callable[..., Path]
) -> None:
    own = make_jar(tmp_path / "own.jar")
    assert main(["conf", "--jar", str(own)]) == 0
    assert capsys.readouterr().out == f"--jars {own} --conf {PROVIDER} --conf {PLUGIN}{ALLOW}\n"


def test_lines_for_spark_defaults(bundled: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["conf", "--format", "spark-defaults", "--local-dir", "/a b"]
    assert main(arguments) == 0
    assert capsys.readouterr().out == (
        f"spark.jars {bundled}\n"
        f"{PREFIX}providerClass statemark.spark.StatemarkStateStoreProvider\n"
        "spark.plugins statemark.spark.StatemarkPlugin\n"
        f"{PREFIX}statemark.packageVersion {statemark.__version__}\n"
        + (f"{PREFIX}statemark.allowRealTime true\n" if REFUSES else "")
        + f"{PREFIX}statemark.localDir /a b\n"
    )


@pytest.mark.parametrize(
    ("path", "character"), [("/a b", "' '"), ("/a\tb", "'\\t'"), ("/a*", "'*'"), ("/a?", "'?'"),
                            ("/a[b]", "'['")],
)  # fmt: skip
def test_a_word_that_the_shell_would_change_is_refused(
    bundled: str, capsys: pytest.CaptureFixture[str], path: str, character: str
) -> None:
    assert main(["conf", "--local-dir", path]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err == (
        f"statemark: {PREFIX}statemark.localDir = {path!r} cannot be printed as flags\n"
        f"  reason: the shell would split or expand $(statemark conf) at {character}\n"
        "  remedy: write a file with `statemark conf --format spark-defaults` and pass it to"
        " spark-submit with --properties-file and --load-spark-defaults\n"
    )


def test_errors_go_to_standard_error(bundled: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["conf", "--max-uncommitted-bytes", "lots"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"statemark: bad value 'lots' for {PREFIX}statemark.maxUncommittedBytes")
    assert "Traceback" not in err


def test_who_reads_may_stop_reading(tmp_path: Path) -> None:
    jar = tmp_path / "a.jar"
    jar.touch()
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "statemark", "conf", "--jar", str(jar)],
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, "")


def _helps(argv: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as caught:
        main([*argv, "--help"])
    assert caught.value.code == 0
    return capsys.readouterr().out


def test_every_help_has_examples_that_parse(capsys: pytest.CaptureFixture[str]) -> None:
    commands = ["conf", "jar", *(command.name for command in COMMANDS)]
    parser = cli.make_parser()
    for command in ["", *commands]:
        _, found, examples = _helps(command.split(), capsys).partition("\nexamples:\n")
        assert found, command
        lines = examples.splitlines()[::2]
        assert len(lines) > 1
        for line in lines:
            program, *argv = shlex.split(line.partition(" > ")[0])
            assert program == "statemark"
            assert argv[: len(command.split())] == command.split()
            parser.parse_args(argv)


@pytest.mark.parametrize(
    ("argv", "meant"),
    [
        (["inspct", "/c"], "inspect"),
        (["inspect", "/c", "--jsn"], "--json or --jars"),
        (["conf", "--local_dir=/d"], "--local-dir"),
        (["topic", "compct"], "compact"),
        (["switch", "/c", "--to", "rocks-db"], "rocksdb"),
        # An option is not taken by a part of its name.
        (["conf", "--isolation", "READ_COMMITTED"], "--isolation-level"),
    ],
)
def test_errors_guess_what_was_meant(
    argv: list[str], meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(argv)
    assert caught.value.code == 2
    *_, guess, more = capsys.readouterr().err.splitlines()
    assert guess == f"  did you mean {meant}?"
    words = more.removeprefix("  examples: statemark ").removesuffix("--help").split()
    assert words == argv[: len(words)]


@pytest.mark.parametrize("argv", [[], ["nothing"], ["conf", "--nothing"], ["jar", "extra"]])
def test_wrong_usage(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(argv)
    assert caught.value.code == 2
    assert "usage: statemark" in capsys.readouterr().err
