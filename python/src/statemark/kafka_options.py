"""Options of Kafka's readers and writers, as Spark takes them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from numbers import Integral
from typing import TYPE_CHECKING

from statemark import arguments, broker_arguments
from statemark.errors import MissingDependencyError, SettingsError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SERVERS = "kafka.bootstrap.servers"
#: Options by the names of arguments.
_OPTIONS = {
    "topic": "topic",
    "sink_name": "sinkName",
    "commit_topic": "commitTopic",
    "transactional_id_prefix": "transactionalIdPrefix",
    "refused_rows_topic": "refusedRowsTopic",
    "on_lost_rows": "onLostRows",
    "producers_per_executor": "producersPerExecutor",
    "open_sinks": "openSinks",
    "kafka_consumer_group": "kafkaConsumerGroup",
    "app_id": "txnAppId",
    "batch_id": "txnVersion",
    "sink": "sink",
    "position_bound": "positionBound",
    "timeout": "timeout",
}
_NUMBERS = frozenset(("producers_per_executor", "open_sinks", "batch_id"))


def of_sink(bootstrap_servers: object, more: object, **named: object) -> dict[str, str]:
    """Return the options of a writer, or of a wait for one.

    Parameters
    ----------
    bootstrap_servers : str or sequence of str
        Addresses of brokers.
    more : Mapping or None
        Options that have no argument.
    named : str or int or None
        Arguments of `kafka_sink`, `kafka_batch` and `wait_for`; None where they are unset.

    Returns
    -------
    dict of str to str
        The options.

    Raises
    ------
    SettingsError
        If an argument is empty or of the wrong type, or an option is given twice.
    """
    given = {_SERVERS: _servers(bootstrap_servers)}
    for name, value in named.items():
        if value is None:
            continue
        if name in _NUMBERS:
            arguments.refuse_type(name, value, Integral, remedy="pass a whole number")
        else:
            arguments.refuse_type(name, value, str, remedy="pass one text")
        given[_OPTIONS[name]] = _joined(name, str(value))
    return _with(given, more)


def of_source(
    bootstrap_servers: object, topics: object, starting_offsets: object, more: object
) -> dict[str, str]:
    """Return the options of a reader of what is committed; arguments are `kafka_source`'s."""
    given = {
        _SERVERS: _servers(bootstrap_servers),
        "subscribe": _joined("topics", topics),
        "kafka.isolation.level": "read_committed",
    }
    if starting_offsets is not None:
        remedy = "pass 'earliest', 'latest', or offsets by topic and partition"
        arguments.refuse_type("starting_offsets", starting_offsets, (str, Mapping), remedy=remedy)
        is_text = isinstance(starting_offsets, str)
        given["startingOffsets"] = (
            str(starting_offsets) if is_text else json.dumps(starting_offsets)
        )
    return _with(given, more)


def refuse_batch(df: DataFrame, *, is_streaming: bool) -> None:
    """Refuse a batch where a stream is wanted, and the reverse.

    Raises
    ------
    SettingsError
        If it is the other.
    """
    if df.isStreaming == is_streaming:
        return
    problem = f"the DataFrame is {'no' if is_streaming else 'a'} streaming one"
    raise SettingsError(
        problem,
        reason="kafka_sink writes what a query makes, and kafka_batch the rows of one batch",
        remedy="call kafka_batch, or read with readStream"
        if is_streaming
        else "call kafka_sink, or call kafka_batch in its foreachBatch",
    )


def no_connector(spark: SparkSession) -> MissingDependencyError:
    """Return the error of a session that cannot read Kafka."""
    problem = "no topic was read"
    wanted = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{spark.version}"
    return MissingDependencyError(
        problem,
        reason="the session has not Spark's Kafka connector",
        remedy=f"start Spark with --packages {wanted}, or spark.jars.packages={wanted}",
    )


def _servers(value: object) -> str:
    text = _joined("bootstrap_servers", value)
    broker_arguments.refuse_addresses("bootstrap_servers", text)
    return text


def _joined(name: str, value: object) -> str:
    parts: list[object] = [value]
    if isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping):
        parts = list(value)
    for part in parts:
        arguments.refuse_type(name, part, str, remedy="pass a text, or a list of them")
    text = ",".join(map(str, parts))
    if not text.strip():
        problem = f"{name} is empty"
        raise SettingsError(problem, reason="nothing is named", remedy="name one or more")
    return text


def _with(given: dict[str, str], more: object) -> dict[str, str]:
    found = arguments.texts("options", more)
    known = {name.lower() for name in given}
    twice = sorted(name for name in found if name.lower() in known)
    if twice:
        problem = f"option {twice[0]!r} is given twice"
        raise SettingsError(
            problem,
            reason="an argument sets it already",
            remedy="give the argument alone",
        )
    return given | found
