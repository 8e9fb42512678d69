"""A wait for the output of a query, by what it has read of its input."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from statemark import _jvm, arguments, failures, kafka_options, queries
from statemark.errors import SettingsError
from statemark.reads import Position

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import SparkSession

    from statemark.queries import Query


def wait_for(
    spark: SparkSession,
    position: Position,
    *,
    query: Query,
    bootstrap_servers: str | Sequence[str],
    sink_name: str | None = None,
    commit_topic: str | None = None,
    timeout: float | str | None = None,
    options: Mapping[str, object] | None = None,
) -> int:
    """Wait until the exactly-once output of a query covers a position of its input.

    Then each reader at ``read_committed``, such as `kafka_source`, finds all rows that the query
    has made of the input up to there. Of a batch that ``foreachBatch`` writes in several versions,
    each is decided by itself and names the input of the whole batch: the wait ends with the first.

    Parameters
    ----------
    spark : SparkSession
        A session that has Statemark's jar and Kafka's client; the query may run in another
        application, or not at all.
    position : Position
        What `position` has returned for the query, or offsets of its Kafka sources by topic and
        partition: the offset behind the last record that counts.
    query : StreamingQuery, UUID or str
        The query that writes, its id, its name, or a ``txnAppId``.
    bootstrap_servers : str or sequence of str
        ``host:port`` of one broker or more, to which the query writes.
    sink_name : str, optional
        Which of several sinks of the query: option ``sinkName``, which is the topic where it is not
        set.
    commit_topic : str, optional
        As for `kafka_sink`.
    timeout : float or str, optional
        Seconds to wait, or a duration such as ``"10s"``; 10 seconds if unset.
    options : mapping of str to object, optional
        Options of Kafka's clients, such as how to log in: ``{"kafka.security.protocol": "SSL"}``.

    Returns
    -------
    int
        The number of the last batch of the output, which covers the position.

    Raises
    ------
    PositionBoundError
        If the output does not cover the position in time; the reason says how far it is.
    SettingsError
        If an argument is empty or of the wrong type, or an option is given twice.
    RefusedSettingError
        If an offset is not of Kafka's source, the query has several sinks and none is named, or
        nothing is known of the input of the query.
    UnavailableError, UnfitClusterError
        If the brokers do not answer, or the user may not ask them.

    Examples
    --------
    >>> import statemark
    >>> there = statemark.Position(0, ('{"orders":{"0":7}}',))
    >>> statemark.wait_for(spark, there, query="totals", bootstrap_servers="broker:9092")
    ... # doctest: +SKIP
    4
    """
    arguments.refuse_other(spark, "SparkSession", remedy="pass the session that reads")
    arguments.refuse_stopped(spark)
    remedy = "pass what statemark.position(query) has returned, or a statemark.Position"
    arguments.refuse_type("position", position, Position, remedy=remedy)
    named = queries.option_of(query)
    sink = named.get("queryId") or named["queryName"]
    if sink_name is not None:
        arguments.refuse_type("sink_name", sink_name, str, remedy="pass one text")
        if not sink_name.strip():
            problem = "sink_name is empty"
            raise SettingsError(problem, reason="nothing is named", remedy="name a sink, or none")
        sink = f"{sink}/{sink_name}"
    given = kafka_options.of_sink(
        bootstrap_servers,
        options,
        commit_topic=commit_topic,
        sink=sink,
        position_bound=json.dumps(position.offsets),
        timeout=None if timeout is None else queries.duration(timeout),
    )
    _jvm.show_jar_to_thread()
    with failures.of_write():
        reader = spark.read.format("statemark-kafka").options(**given)
        batch: int = reader.load().collect()[0].batch_id
    return batch
