"""Kafka, exactly once: output of a query or of a batch, and a reader of what is committed.

Each is Spark's own reader or writer with the options set; the work is done by format
``statemark-kafka``. Columns, options and what is promised: docs/kafka-sink.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from typing import TYPE_CHECKING, Any

from statemark import arguments, failures, kafka_options
from statemark.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

_FORMAT = "statemark-kafka"


def kafka_sink(
    df: DataFrame,
    *,
    bootstrap_servers: str | Sequence[str],
    topic: str | None = None,
    sink_name: str | None = None,
    commit_topic: str | None = None,
    transactional_id_prefix: str | None = None,
    refused_rows_topic: str | None = None,
    on_lost_rows: str | None = None,
    producers_per_executor: int | None = None,
    kafka_consumer_group: str | None = None,
    options: Mapping[str, object] | None = None,
) -> DataStreamWriter:
    """Return a writer of a streaming DataFrame to Kafka, each row exactly once.

    Parameters
    ----------
    df : DataFrame
        A streaming one, with a column ``value``, and ``key``, ``topic``, ``partition``,
        ``headers`` and ``timestamp`` as far as they are wanted.
    bootstrap_servers : str or sequence of str
        ``host:port`` of one broker or more.
    topic : str, optional
        Where every row goes; unset, rows say it in a column of that name.
    sink_name : str, optional
        Who writes: several sinks of one query need different names. Unset: the topic.
    commit_topic : str, optional
        Where decisions are kept. Unset: ``statemark-commits``.
    transactional_id_prefix : str, optional
        What transactional ids begin with. Unset: ``statemark``.
    refused_rows_topic : str, optional
        Where rows go that their topic can never take. Unset: such a row fails the query.
    on_lost_rows : str, optional
        ``"fail"`` or ``"rerun"``.
    producers_per_executor : int, optional
        Producers, and open transactions, of an executor. Unset: 1.
    kafka_consumer_group : str, optional
        The group to which each batch commits where the query's Kafka sources end, as lag tools read
        it. Nothing else may use it.
    options : mapping of str to object, optional
        More options, as ``{"kafka.linger.ms": 20}``.

    Returns
    -------
    DataStreamWriter
        Still to be given a checkpoint, and perhaps an output mode and a trigger.

    Raises
    ------
    SettingsError
        If an argument is empty or of the wrong type, an option is given twice, or the DataFrame is
        no streaming one. What the sink refuses, it refuses
        as the query starts.

    Examples
    --------
    >>> import statemark
    >>> writer = statemark.kafka_sink(totals, bootstrap_servers="broker:9092", topic="totals")
    ... # doctest: +SKIP
    >>> writer.option("checkpointLocation", "/checkpoints/totals").start()  # doctest: +SKIP
    """
    given = kafka_options.of_sink(
        bootstrap_servers,
        options,
        topic=topic,
        sink_name=sink_name,
        commit_topic=commit_topic,
        transactional_id_prefix=transactional_id_prefix,
        refused_rows_topic=refused_rows_topic,
        on_lost_rows=on_lost_rows,
        producers_per_executor=producers_per_executor,
        kafka_consumer_group=kafka_consumer_group,
    )
    arguments.refuse_other(df, "DataFrame", remedy="pass the table that the query makes")
    kafka_options.refuse_batch(df, is_streaming=True)
    return df.writeStream.format(_FORMAT).options(**given)


def kafka_batch(
    df: DataFrame,
    batch_id: int,
    *,
    bootstrap_servers: str | Sequence[str],
    topic: str | None = None,
    app_id: str | None = None,
    sink_name: str | None = None,
    commit_topic: str | None = None,
    transactional_id_prefix: str | None = None,
    refused_rows_topic: str | None = None,
    on_lost_rows: str | None = None,
    producers_per_executor: int | None = None,
    open_sinks: int | None = None,
    kafka_consumer_group: str | None = None,
    options: Mapping[str, object] | None = None,
) -> None:
    """Write a batch to Kafka, once for its number: in ``foreachBatch``, or in a job.

    Parameters
    ----------
    df : DataFrame
        The batch, with columns as for `kafka_sink`.
    batch_id : int
        Its number (``txnVersion``): one that is decided already is not written again.
    bootstrap_servers : str or sequence of str
        ``host:port`` of one broker or more.
    topic : str, optional
        Where every row goes; unset, rows say it in a column of that name.
    app_id : str, optional
        Whose number it is (``txnAppId``). Unset: the query whose ``foreachBatch`` this is; on
        Spark Connect, and outside of queries, it has to be given.
    sink_name : str, optional
        Who writes: of two frames of one batch that go to one topic, the second needs a name. To
        change the name of a write that has rows in the topic writes a batch again.
    commit_topic, transactional_id_prefix, refused_rows_topic, on_lost_rows : str, optional
        As for `kafka_sink`.
    producers_per_executor : int, optional
        As for `kafka_sink`.
    kafka_consumer_group : str, optional
        As for `kafka_sink`; in ``foreachBatch`` alone.
    open_sinks : int, optional
        How many sinks of the query keep their clients open for the next batch, where it writes to
        many. Unset: 16.
    options : mapping of str to object, optional
        More options.

    Raises
    ------
    SettingsError
        If an argument is empty, negative or of the wrong type, an option is given twice, or the
        DataFrame is a streaming one.
    EngineError
        If the batch is refused or fails; the class is the kind, mostly a `SinkError`. Raised on
        from ``foreachBatch`` it ends the query, and `error_of` returns it from
        ``query.exception()``. On Spark Connect, what fails in a task is Spark's own exception.

    Examples
    --------
    >>> import statemark
    >>> def write(df, batch_id):
    ...     statemark.kafka_batch(df, batch_id, bootstrap_servers="broker:9092", topic="orders")
    >>> orders.writeStream.foreachBatch(write).start()  # doctest: +SKIP
    """
    remedy = "give the number that foreachBatch hands over"
    arguments.refuse_type("batch_id", batch_id, Integral, remedy=remedy)
    if batch_id < 0:
        problem = f"batch_id={batch_id} is refused"
        raise SettingsError(
            problem,
            reason="numbers of batches ascend from 0",
            remedy=remedy,
        )
    if app_id is None and arguments.is_of_connect(df):
        problem = "app_id is missing"
        raise SettingsError(
            problem,
            reason="on Spark Connect nobody knows which query this batch is of",
            remedy="give app_id, a name that stays the same as long as the checkpoint does",
        )
    given = kafka_options.of_sink(
        bootstrap_servers,
        options,
        topic=topic,
        sink_name=sink_name,
        commit_topic=commit_topic,
        transactional_id_prefix=transactional_id_prefix,
        refused_rows_topic=refused_rows_topic,
        on_lost_rows=on_lost_rows,
        producers_per_executor=producers_per_executor,
        kafka_consumer_group=kafka_consumer_group,
        open_sinks=open_sinks,
        app_id=app_id,
        batch_id=batch_id,
    )
    arguments.refuse_other(df, "DataFrame", remedy="pass the batch that foreachBatch hands over")
    kafka_options.refuse_batch(df, is_streaming=False)
    with failures.of_write():
        df.write.format(_FORMAT).mode("append").options(**given).save()


def kafka_source(
    spark: SparkSession,
    *,
    bootstrap_servers: str | Sequence[str],
    topics: str | Sequence[str],
    starting_offsets: str | Mapping[str, Mapping[str, int]] | None = None,
    streaming: bool = True,
    options: Mapping[str, object] | None = None,
) -> DataFrame:
    """Return the rows of topics that are committed, with Spark's own connector.

    Spark's default is ``read_uncommitted``: rows of tries that were aborted are read as well.

    Parameters
    ----------
    spark : SparkSession
        The session; it needs Spark's Kafka connector.
    bootstrap_servers : str or sequence of str
        ``host:port`` of one broker or more.
    topics : str or sequence of str
        Names of topics.
    starting_offsets : str or Mapping, optional
        As Spark's ``startingOffsets``: a text, or offsets by topic and partition, as
        ``{"orders": {"0": 7}}``.
    streaming : bool, optional
        Whether it goes on as rows come; else it ends where the topics end now.
    options : mapping of str to object, optional
        More options of the connector.

    Returns
    -------
    DataFrame
        Columns ``key``, ``value`` (binary), ``topic``, ``partition``, ``offset``, ``timestamp``,
        ``timestampType``.

    Raises
    ------
    SettingsError
        If an argument is empty or of the wrong type, or an option is given twice.
    MissingDependencyError
        If the session has not Spark's Kafka connector; on Spark Connect an action on the table
        fails instead.

    Examples
    --------
    >>> import statemark
    >>> statemark.kafka_source(spark, bootstrap_servers="broker:9092", topics="orders")
    ... # doctest: +SKIP
    """
    given = kafka_options.of_source(bootstrap_servers, topics, starting_offsets, options)
    arguments.refuse_no_flag("streaming", streaming)
    arguments.refuse_other(spark, "SparkSession", remedy="pass the session that reads")
    arguments.refuse_stopped(spark)
    reader: Any = spark.readStream if streaming else spark.read
    try:
        frame: DataFrame = reader.format("kafka").options(**given).load()
    except Exception as e:  # of classes that differ between sessions and lines of Spark
        if "Failed to find data source: kafka" in str(e):
            raise kafka_options.no_connector(spark) from None
        raise
    return frame
