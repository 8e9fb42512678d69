from __future__ import annotations

from pathlib import Path

import pytest

from statemark import SettingsError, layers
from statemark.layers import SubmitArgs, contains, merge


def test_merging_keeps_order_and_drops_repetitions() -> None:
    assert merge("/b.jar, /a.jar,", "", "/c.jar,/b.jar") == "/b.jar,/a.jar,/c.jar"
    assert merge("", "") == ""


@pytest.mark.parametrize(
    "other",
    ["/x/a b.jar", "file:/x/a%20b.jar", "file:///x/a%20b.jar", "file://localhost/x/a b.jar",
     "/x/y/../a b.jar"],
)  # fmt: skip
def test_spellings_of_one_path_are_one_jar(other: str) -> None:
    assert merge("/x/a b.jar", other) == "/x/a b.jar"
    assert contains(f"/z.jar, {other}", "/x/a b.jar")


def test_a_relative_path_is_one_of_the_working_directory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert merge("lib/a.jar", f"file://{tmp_path}/lib/a.jar") == "lib/a.jar"


def test_different_jars_stay_different() -> None:
    assert merge("/a.jar", "hdfs:///a.jar", "/b/a.jar") == "/a.jar,hdfs:///a.jar,/b/a.jar"
    assert not contains("hdfs:///a.jar,/b/a.jar,/a.jar.bak", "/a.jar")
    assert not contains("", "/a.jar")


@pytest.mark.parametrize(
    ("text", "jars"),
    [
        ("pyspark-shell", ""),
        ("--jars /a.jar pyspark-shell", "/a.jar"),
        ("--jars=/a.jar pyspark-shell", "/a.jar"),
        ("--jars /a.jar --jars /b.jar pyspark-shell", "/b.jar"),
        ("--conf spark.jars=/a.jar pyspark-shell", "/a.jar"),
        ("--conf=spark.jars=/a.jar pyspark-shell", "/a.jar"),
        ("-c spark.jars=/a.jar -c spark.jars=/b.jar pyspark-shell", "/b.jar"),
        ("--jars /a.jar --conf spark.jars=/b.jar pyspark-shell", "/a.jar"),
        ("--conf spark.jars=/b.jar --jars /a.jar pyspark-shell", "/a.jar"),
        ("--name --jars --verbose --jars '/a b.jar' pyspark-shell", "/a b.jar"),
        ("--conf 'spark.x=--jars /n.jar' pyspark-shell", ""),
        ("pyspark-shell --jars /a.jar", ""),
        ("--jars", ""),
    ],
)
def test_jars_that_submit_args_name(text: str, jars: str) -> None:
    assert SubmitArgs.parse(text).jars == jars


@pytest.mark.parametrize(
    ("text", "changed"),
    [
        ("pyspark-shell", "--jars /m.jar pyspark-shell"),
        ("--jars /a.jar -v --name 'x y' pyspark-shell --jars /n",
         "--jars /m.jar -v --name 'x y' pyspark-shell --jars /n"),
        ("--jars=/a.jar --conf=k=v --jars /b.jar pyspark-shell",
         "--jars /m.jar --conf k=v pyspark-shell"),
        ("--supervise --load-spark-defaults --jars /a.jar pyspark-shell",
         "--jars /m.jar --supervise --load-spark-defaults pyspark-shell"),
    ],
)  # fmt: skip
def test_replacing_the_jars_keeps_everything_else(text: str, changed: str) -> None:
    assert SubmitArgs.parse(text).with_jars("/m.jar") == changed


def test_unreadable_submit_args_are_refused() -> None:
    with pytest.raises(SettingsError) as caught:
        SubmitArgs.parse("--jars '/a.jar")
    assert caught.value.problem == 'PYSPARK_SUBMIT_ARGS cannot be read: "--jars \'/a.jar"'
    assert caught.value.reason == "No closing quotation"


def test_submit_args_default_to_those_of_pyspark() -> None:
    assert layers.submit_args(env={}).with_jars("/m.jar") == "--jars /m.jar pyspark-shell"
    env = {"PYSPARK_SUBMIT_ARGS": "--jars /a.jar pyspark-shell"}
    assert layers.submit_args(env=env).jars == "/a.jar"


@pytest.fixture
def files(tmp_path: Path) -> Path:
    for name in ("conf/spark-defaults.conf", "home/conf/spark-defaults.conf", "p.conf", "q.conf"):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"spark.jars /{name}.jar\nspark.from.{name.split('/')[0]} 1\n")
    return tmp_path


def _jars(files: Path, args: str, **env: str) -> str:
    variables = {name: str(files / value) for name, value in env.items()}
    found = layers.defaults(env=variables, args=SubmitArgs.parse(args.replace("@", f"{files}/")))
    return found.get("spark.jars", "")


def test_defaults_come_from_the_first_directory_that_spark_looks_in(files: Path) -> None:
    both = {"SPARK_CONF_DIR": "conf", "SPARK_HOME": "home"}
    assert _jars(files, "pyspark-shell", **both) == "/conf/spark-defaults.conf.jar"
    assert _jars(files, "pyspark-shell", SPARK_HOME="home") == "/home/conf/spark-defaults.conf.jar"
    assert _jars(files, "pyspark-shell", SPARK_HOME="elsewhere") == ""


def test_a_properties_file_replaces_the_defaults_unless_they_are_asked_for(files: Path) -> None:
    env = {"SPARK_CONF_DIR": "conf"}
    assert _jars(files, "--properties-file @p.conf x", **env) == "/p.conf.jar"
    assert _jars(files, "--properties-file @p.conf --properties-file @q.conf x", **env) == (
        "/q.conf.jar"
    )
    asked = "--properties-file @p.conf --load-spark-defaults x"
    (files / "p.conf").write_text("spark.other 1")
    assert _jars(files, asked, **env) == "/conf/spark-defaults.conf.jar"
    with pytest.raises(SettingsError, match=r"none\.conf cannot be read"):
        _jars(files, "--properties-file=@none.conf x", **env)


def test_extra_properties_files_hide_the_others(files: Path) -> None:
    env = {"SPARK_CONF_DIR": "conf"}
    assert _jars(files, "--extra-properties-file @q.conf x", **env) == "/q.conf.jar"
    both = "--extra-properties-file @q.conf --properties-file @p.conf x"
    assert _jars(files, both, **env) == "/q.conf.jar"
