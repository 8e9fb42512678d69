"""Queries that began on Spark 3.5's default provider, imported by `switch`, and on Spark's own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.java_gateway import ensure_callback_server_started
from support import spark35
from support.session import STATE_STORE, STATEMARK_PROVIDER

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

_ARCHIVES = Path(__file__).with_name("spark35")


class _Session:
    """The session, as a parameter of the JVM that is passed by name."""

    class Java:
        implements = ("scala.Function0",)

    def __init__(self, spark: SparkSession) -> None:
        self._session = spark._jsparkSession

    def apply(self) -> Any:
        return self._session


def _switch(spark: SparkSession, checkpoint: Path) -> str:
    """Run `statemark switch` in the session's JVM: a process for each query would take too long."""
    ensure_callback_server_started(spark.sparkContext._gateway)
    jvm: Any = spark._jvm
    tools = jvm.statemark.spark.offline
    out, err = jvm.java.io.ByteArrayOutputStream(), jvm.java.io.ByteArrayOutputStream()
    context = tools.cli.CommandContext(
        _Session(spark),
        tools.cli.StreamConsole(out, err),
        jvm.statemark.common.Clock.system(),
        tools.cli.Waiter.system(),
    )
    arguments = getattr(tools.switching, "SwitchCommand$Arguments")
    no_force_no_dry_run_no_json = [False] * 3
    tools.switching.SwitchCommand.run(
        arguments(str(checkpoint), "statemark", 0.1, *no_force_no_dry_run_no_json), context
    )
    return str(out.toString())


def _check(history: spark35.History) -> None:
    emitted, wanted = history.emitted(), history.wanted()
    if history.query.name == "limit":
        assert emitted.total() == spark35.LIMIT
        assert emitted <= wanted
    else:
        assert emitted == wanted


@pytest.mark.parametrize("query", spark35.QUERIES, ids=lambda query: query.name)
def test_a_query_of_spark_35_goes_on(
    spark: SparkSession,
    provider: str,
    conf: Callable[[str, str], None],
    tmp_path: Path,
    query: spark35.Query,
) -> None:
    history = spark35.unpacked(spark, query, _ARCHIVES, tmp_path)
    is_ours = provider == STATEMARK_PROVIDER
    if is_ours:
        assert "imported version" in _switch(spark, history.checkpoint)
    # The session's own provider counts for nothing: the checkpoint pins one.
    history.arrive(spark35.AFTER)
    if query.is_refused_by_spark:
        with pytest.raises(StreamingQueryException, match="VALUE_SCHEMA_NOT_COMPATIBLE"):
            history.run()
        conf(f"{STATE_STORE}.stateSchemaCheck", "false")
    metrics = history.run()
    assert any(name.startswith("statemark") for name in metrics) == is_ours
    _check(history)
    # One batch of this Spark writes what 3.5 has not, on its own provider as well.
    operators = [path for path in (history.checkpoint / "state").iterdir() if path.is_dir()]
    assert all((path / "_metadata/metadata").is_file() for path in operators)
