from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

import statemark
from statemark import (
    ConnectError,
    IsolationLevel,
    SessionRunningError,
    SettingsError,
    _jvm,
    session,
)

PLUGIN = "statemark.spark.StatemarkPlugin"
PREFIX = "spark.sql.streaming.stateStore.statemark."
ALLOW = PREFIX + "allowRealTime"
PROVIDER = {
    "spark.plugins": PLUGIN,
    "spark.sql.streaming.stateStore.providerClass": "statemark.spark.StatemarkStateStoreProvider",
    PREFIX + "packageVersion": statemark.__version__,
}
#: Spark refuses real-time queries beside another provider than its own.
REFUSES = [int(part) for part in pyspark.__version__.split(".")[:2]] >= [4, 3]
if REFUSES:
    PROVIDER[ALLOW] = "true"


def test_conf_writes_what_was_asked_for_and_nothing_else(bundled: str) -> None:
    assert statemark.conf() == {"spark.jars": bundled, **PROVIDER}
    assert statemark.conf(
        isolation_level="read_uncommitted", max_uncommitted_bytes="64M", local_dir=Path("/d")
    ) == {
        "spark.jars": bundled,
        **PROVIDER,
        PREFIX + "isolationLevel": "READ_UNCOMMITTED",
        PREFIX + "maxUncommittedBytes": "64m",
        PREFIX + "localDir": "/d",
    }


def test_a_default_that_is_given_is_written(bundled: str) -> None:
    conf = statemark.conf(
        isolation_level=IsolationLevel.READ_COMMITTED, max_uncommitted_bytes="auto"
    )
    assert conf[PREFIX + "isolationLevel"] == "READ_COMMITTED"
    assert conf[PREFIX + "maxUncommittedBytes"] == "auto"
    assert len(conf) == 6 + REFUSES


@pytest.mark.parametrize(
    ("line", "allows"), [("4.0", False), ("4.2", False), ("4.3", True), ("4.10", True)]
)
def test_real_time_queries_are_allowed_where_spark_would_refuse_them(
    tmp_path: Path, make_jar: Callable[..., Path], line: str, allows: bool
) -> None:
    jar = make_jar(tmp_path / f"statemark-spark_{line}_2.13-0.1.0.jar")
    assert (statemark.conf(jar=jar).get(ALLOW) == "true") == allows
    own = make_jar(tmp_path / "own.jar")
    assert (statemark.conf(jar=own, spark_version=f"{line}.0").get(ALLOW) == "true") == allows
    builder = statemark.configure(SparkSession.builder, jar=jar)
    assert (builder._options.get(ALLOW) == "true") == allows


@pytest.mark.parametrize("layer", ["builder", "submit", "defaults"])
def test_a_layer_may_forbid_real_time_queries(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, make_jar: Callable[..., Path], layer: str
) -> None:
    builder = SparkSession.builder
    builder._options.clear()
    if layer == "builder":
        builder.config(ALLOW, "false")
    elif layer == "submit":
        monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", f"--conf {ALLOW}=false pyspark-shell")
    else:
        (Path(os.environ["SPARK_CONF_DIR"]) / "spark-defaults.conf").write_text(f"{ALLOW} false\n")
    jar = make_jar(tmp_path / "statemark-spark_4.3_2.13-0.1.0.jar")
    statemark.configure(builder, jar=jar)
    assert builder._options.get(ALLOW) == ("false" if layer == "builder" else None)


def test_conf_takes_another_jar(tmp_path: Path, make_jar: Callable[..., Path]) -> None:
    own = make_jar(tmp_path / "own.jar")
    assert statemark.conf(jar=own)["spark.jars"] == str(own)


def test_a_running_session_is_not_told_what_an_application_has_from_its_start() -> None:
    """`use` compares the versions itself."""
    made = session.runtime_settings(
        isolation_level=None, max_uncommitted_bytes=None, local_dir=None
    )
    assert set(made) == {"spark.sql.streaming.stateStore.providerClass"}


def test_configure_returns_the_builder_with_the_settings(bundled: str) -> None:
    builder = SparkSession.builder.appName("x")
    assert statemark.configure(builder, local_dir="/d", max_uncommitted_bytes=-1) is builder
    assert builder._options == {
        "spark.app.name": "x",
        "spark.jars": bundled,
        **PROVIDER,
        PREFIX + "maxUncommittedBytes": "-1",
        PREFIX + "localDir": "/d",
    }


def test_configure_adds_to_the_jars_of_every_layer(
    bundled: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    defaults = Path(os.environ["SPARK_CONF_DIR"]) / "spark-defaults.conf"
    defaults.write_text("spark.jars /low.jar,/mid.jar\n")
    submit_args = "--jars /mid.jar pyspark-shell"
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", submit_args)
    builder = SparkSession.builder.config("spark.jars", "/top.jar")
    statemark.configure(builder)
    assert builder._options["spark.jars"] == f"/top.jar,/mid.jar,/low.jar,{bundled}"
    assert os.environ["PYSPARK_SUBMIT_ARGS"] == submit_args


def test_configuring_twice_is_configuring_once(
    bundled: str, tmp_path: Path, make_jar: Callable[..., Path]
) -> None:
    builder = statemark.configure(SparkSession.builder, local_dir="/a")
    first = builder.getOrCreate
    statemark.configure(builder, local_dir="/b")
    assert builder._options["spark.jars"] == bundled
    assert builder._options[PREFIX + "localDir"] == "/b"
    assert builder.getOrCreate.original == first.original  # type: ignore[attr-defined]


@pytest.mark.parametrize("layer", ["builder", "submit", "defaults"])
def test_settings_of_every_layer_are_checked(
    bundled: str, monkeypatch: pytest.MonkeyPatch, layer: str
) -> None:
    key = PREFIX + "isolatonLevel"
    builder = SparkSession.builder
    if layer == "builder":
        builder.config(key, "x")
        source = "the builder"
    elif layer == "submit":
        monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", f"--conf {key}=x pyspark-shell")
        source = "PYSPARK_SUBMIT_ARGS"
    else:
        file = Path(os.environ["SPARK_CONF_DIR"]) / "spark-defaults.conf"
        file.write_text(f"{key} x\n")
        source = "spark-defaults.conf or the properties file"
    before = dict(builder._options)
    with pytest.raises(SettingsError) as caught:
        statemark.configure(builder)
    assert caught.value.problem == f"unknown setting {key} = 'x', set in {source}"
    assert builder._options == before


@pytest.mark.parametrize(
    ("named", "wanted"),
    [("a.B", "a.B,{PLUGIN}"), ("{PLUGIN},a.B", "a.B,{PLUGIN}"), ("", "{PLUGIN}")],
)
def test_other_plugins_are_kept(
    bundled: str, monkeypatch: pytest.MonkeyPatch, named: str, wanted: str
) -> None:
    named, wanted = (text.replace("{PLUGIN}", PLUGIN) for text in (named, wanted))
    builder = SparkSession.builder.config("spark.plugins", named)
    statemark.configure(builder, local_dir="/d")
    assert builder._options["spark.plugins"] == wanted
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", f"--conf spark.plugins={named} pyspark-shell")
    builder = SparkSession.builder
    builder._options.clear()
    statemark.configure(builder, local_dir="/d")
    assert builder._options["spark.plugins"] == wanted


def test_a_bad_setting_on_the_builder_may_be_corrected_by_the_call(bundled: str) -> None:
    builder = SparkSession.builder.config(PREFIX + "localDir", "relative")
    statemark.configure(builder, local_dir="/absolute")
    assert builder._options[PREFIX + "localDir"] == "/absolute"


def test_a_bad_value_leaves_the_builder_as_it_was(bundled: str) -> None:
    builder = SparkSession.builder.config("spark.x", "1")
    with pytest.raises(SettingsError):
        statemark.configure(builder, local_dir="/d", isolation_level="none")
    assert builder._options == {"spark.x": "1"}


def test_what_is_no_builder_is_refused() -> None:
    with pytest.raises(SettingsError) as caught:
        statemark.configure("SparkSession.builder")  # type: ignore[arg-type]
    assert str(caught.value) == (
        "cannot configure a str\n  reason: it is not a SparkSession.Builder\n"
        "  remedy: pass SparkSession.builder, with options if any, before getOrCreate()"
    )


@pytest.mark.parametrize(
    ("options", "env", "reason"),
    [
        ({"spark.remote": "sc://h"}, {}, "the builder has remote('sc://h')"),
        ({}, {"SPARK_REMOTE": "sc://h"}, "SPARK_REMOTE is 'sc://h'"),
        ({}, {"SPARK_CONNECT_MODE_ENABLED": "1"}, "SPARK_CONNECT_MODE_ENABLED is set"),
        ({"spark.master": "sc://h"}, {}, "the master is 'sc://h'"),
        ({}, {"MASTER": "sc://h"}, "the master is 'sc://h'"),
        ({"spark.api.mode": "Connect"}, {}, "the API mode is connect"),
        ({}, {"SPARK_API_MODE": "connect"}, "the API mode is connect"),
    ],
)
def test_connect_is_refused_with_what_to_set_on_the_server(
    bundled: str,
    monkeypatch: pytest.MonkeyPatch,
    options: dict[str, str],
    env: dict[str, str],
    reason: str,
) -> None:
    builder = SparkSession.builder
    for key, value in options.items():
        builder.config(key, value)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConnectError) as caught:
        statemark.configure(builder, local_dir="/d")
    assert str(caught.value) == (
        "a Spark Connect client cannot choose the state store of its server\n"
        f"  reason: {reason}; jars and the provider's class are set when the server starts\n"
        "  remedy: start the server with the flags that `statemark conf` prints there, or put"
        " into its spark-defaults.conf, beside spark.jars with the plugin's jar:\n"
        "    spark.sql.streaming.stateStore.providerClass"
        " statemark.spark.StatemarkStateStoreProvider\n"
        "    spark.plugins statemark.spark.StatemarkPlugin\n"
        f"    {PREFIX}packageVersion {statemark.__version__}\n"
        + (f"    {ALLOW} true\n" if REFUSES else "")
        + "    spark.sql.streaming.stateStore.statemark.localDir /d"
    )


def test_connect_is_refused_at_the_start_as_well(bundled: str) -> None:
    builder = statemark.configure(SparkSession.builder)
    builder.remote("sc://h")
    with pytest.raises(ConnectError, match=r"remote\('sc://h'\)"):
        builder.getOrCreate()


@pytest.mark.parametrize(("has_context", "what"), [(True, "session"), (False, "Java virtual mac")])
def test_a_running_spark_without_the_jar_is_refused(
    bundled: str, monkeypatch: pytest.MonkeyPatch, has_context: bool, what: str
) -> None:
    monkeypatch.setattr(_jvm, "started", lambda: True)
    monkeypatch.setattr(_jvm, "has_context", lambda: has_context)
    monkeypatch.setattr(_jvm, "launched_jars", lambda: "file:///u.jar")
    monkeypatch.setattr(_jvm, "sees_provider", lambda: False)
    builder = SparkSession.builder
    with pytest.raises(SessionRunningError) as caught:
        statemark.configure(builder)
    assert caught.value.problem.startswith(f"a Spark {what}")
    assert caught.value.problem.endswith(f"already runs, without the Statemark jar {bundled}")
    assert caught.value.reason.endswith("it was started with spark.jars=file:///u.jar")
    assert "call configure before anything starts Spark" in caught.value.remedy
    assert "`statemark conf`" in caught.value.remedy
    assert builder._options == {}


@pytest.mark.parametrize(
    ("launched", "sees", "own", "jars"),
    [
        ("file://{jar},/p.jar", False, None, None),
        ("file://{jar},/p.jar", False, "/u.jar", "/u.jar,file://{jar},/p.jar"),
        ("", True, None, None),
        ("", True, "/u.jar", "/u.jar"),
    ],
)
def test_a_running_spark_with_the_plugin_keeps_its_jars(
    bundled: str,
    monkeypatch: pytest.MonkeyPatch,
    launched: str,
    sees: bool,
    own: str | None,
    jars: str | None,
) -> None:
    monkeypatch.setattr(_jvm, "started", lambda: True)
    monkeypatch.setattr(_jvm, "launched_jars", lambda: launched.format(jar=bundled))
    monkeypatch.setattr(_jvm, "sees_provider", lambda: sees)
    builder = SparkSession.builder
    if own:
        builder.config("spark.jars", own)
    statemark.configure(builder)
    expected = None if jars is None else jars.format(jar=bundled)
    assert builder._options.get("spark.jars") == expected
