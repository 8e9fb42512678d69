"""KIP-280 for Spark: of the records of each key the right one, whatever order they came in."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from statemark import arguments, winners_arguments, winners_rules
from statemark.winners_ttl import functions_of, remembered, require_comparable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def latest(
    df: DataFrame,
    *,
    key: str | Sequence[str] = "key",
    strategy: str = "offset",
    header: str | None = None,
    missing: str = "oldest",
    ttl: timedelta | None = None,
    observed_as: str = "statemark_latest",
) -> DataFrame:
    """Return the winner of each key: what KIP-280 keeps of the records of a topic.

    Of the records of a key in one partition the one with the highest version is kept, and of two
    with one version the one with the higher offset. A key that has moved to another partition has
    a winner in each: of these the one with the highest version is kept, then the latest by its
    timestamp, then the one of the higher partition. Where `df` has a column ``topic``, partitions
    of several topics are told apart by it.

    A streaming query emits, in each batch, the winner of every key that the batch has records of,
    in output mode ``update``: also where the winner is one of before, so that a compacted topic
    that it is written to keeps the right record.

    Parameters
    ----------
    df : DataFrame
        Records, streaming or not, with the columns ``partition``, ``offset`` and ``timestamp`` as
        Spark's Kafka source has them, and whatever else is wanted of the winner.
    key : str or sequence of str, optional
        The column, or columns, that say which records are of one key. A record in which one of
        them is null is left out, as compaction knows no such record.
    strategy : str, optional
        What the version of a record is. ``"offset"``: none, as Kafka compacts. ``"timestamp"``:
        its timestamp. ``"header"``: a header of it.
    header : str, optional
        With strategy ``"header"``, the header's key. Its value is a signed number of 8 bytes, big
        end first; the last one counts where a record has several. Needs the column
        ``headers``: option ``includeHeaders`` of the source.
    missing : str, optional
        What becomes of a record without that header, or with one of another length. ``"oldest"``:
        it loses against every record that has one. ``"refuse"``: the query fails, and names it.
    ttl : timedelta, optional
        How long state remembers a winner, from the batch in which it came, by the driver's clock
        as that batch was planned; losers do not lengthen it. Unset: for ever. A loser that comes
        later than that finds nobody who beats it: it is emitted, and a table that is made of the
        output has it from then on. So `ttl` has to be longer than records are late. Only for
        streaming queries, on Statemark or Spark's RocksDB provider, and for keys of binary, text,
        whole or decimal numbers, booleans and dates; rows pass through Python and JSON, which
        costs several times as much. With trigger ``availableNow`` Spark
        goes on for the sake of the clock, unless
        ``spark.sql.streaming.noDataMicroBatches.enabled`` is false.
    observed_as : str, optional
        What the counts are called; two `latest` in one query need different names.

    Returns
    -------
    DataFrame
        The columns of `df`, a row for each key. A tombstone that wins is a row without a value.

    Raises
    ------
    SettingsError
        If an argument is not one of these, a column is missing or of another type, the session
        has not Statemark's jar, or ``statemark topic compact`` repairs a topic that `df` reads by
        another rule.
    MissingDependencyError
        If pandas is not installed, which `ttl` needs.

    Notes
    -----
    A streaming query counts in ``observedMetrics`` of its progress, under `observed_as`:
    ``records``, ``withoutKey``, and with strategy ``"header"`` also ``withoutHeader`` and
    ``otherLength``, records whose header has not 8 bytes.

    By which rule a topic is repaired, its commit topic says: the source's option ``commitTopic``,
    ``statemark-commits`` by default. It is asked where `df` is a stream of Spark's Kafka source in
    a classic session; else the log says once that it was not.

    Runs on any state store provider and on Spark Connect; Statemark's jar has to be in the session.
    State has a record for each key and partition. A checkpoint belongs to one strategy, header and
    list of columns: a query that is started on it with others fails by name. Source: KIP-280,
    "Compaction Strategies".

    Examples
    --------
    >>> import statemark
    >>> orders = statemark.kafka_source(
    ...     spark,
    ...     bootstrap_servers="broker:9092",
    ...     topics="orders",
    ...     options={"includeHeaders": True},
    ... )  # doctest: +SKIP
    >>> newest = statemark.latest(orders, strategy="header", header="version")  # doctest: +SKIP
    >>> rows = newest.select("key", "value", "headers")  # doctest: +SKIP
    >>> statemark.kafka_sink(
    ...     rows, bootstrap_servers="broker:9092", topic="orders-latest"
    ... ).outputMode("update")  # doctest: +SKIP
    """
    arguments.refuse_other(df, "DataFrame", remedy="pass a table, such as of kafka_source")
    keys = winners_arguments.keys_of(key)
    winners_arguments.refuse_unfit(strategy, header, observed_as)
    winners_arguments.refuse_unfit_missing(missing, strategy)
    if ttl is None:
        winners_arguments.require_function(df)
    else:
        winners_arguments.refuse_unfit_ttl(df, ttl)
    winners_arguments.require_columns(df, keys, strategy)
    if ttl is not None:
        require_comparable(df, keys)
    winners_rules.refuse_other_rule(df, strategy=strategy, header=header)
    columns = [_quoted(name) for name in keys]
    value = _header(header or "")
    version = _version(strategy, value, missing)
    is_keyless = " OR ".join(f"{column} IS NULL" for column in columns)
    counts = {"records": "true", "withoutKey": is_keyless}
    if strategy == "header":
        counts |= {"withoutHeader": f"{value} IS NULL", "otherLength": f"length({value}) != 8"}
    names = [f"key{i}" for i in range(len(columns))]
    candidates = (
        _observed(df, observed_as, counts)
        .where(f"NOT ({is_keyless})")
        .selectExpr(
            *(f"{column} AS {name}" for column, name in zip(columns, names, strict=True)),
            f"named_struct('row', struct(*), 'version', {version}, 'topic', {_topic(df)}, "
            "'partition', `partition`, 'offset', `offset`, 'timestamp', `timestamp`, "
            f"'rule', {_rule(df, strategy, header)}L) AS candidate",
        )
    )
    if ttl is not None:
        return remembered(candidates, names, df.schema, ttl)
    functions = functions_of(df)
    winner = functions.call_function(winners_arguments.FUNCTION, functions.col("candidate")).alias(
        "winner"
    )
    return candidates.groupBy(*names).agg(winner).selectExpr("winner.*")


def _observed(df: DataFrame, name: str, counts: dict[str, str]) -> DataFrame:
    """Let a streaming query count the rows for which conditions are true."""
    if not df.isStreaming:
        return df
    functions = functions_of(df)
    counted = (functions.expr(f"count_if({test})").alias(of) for of, test in counts.items())
    return df.observe(name, *counted)


def _topic(df: DataFrame) -> str:
    """Return whose partition it is, in SQL: offsets of two topics say nothing of each other."""
    has_topic = dict(df.dtypes).get("topic") == "string"
    return "`topic`" if has_topic else "CAST(NULL AS STRING)"


def _rule(df: DataFrame, strategy: str, header: str | None) -> int:
    """Return a number for all that has to be the same for state to be understood."""
    text = repr((strategy, header, df.dtypes))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def _version(strategy: str, header: str, missing: str) -> str:
    """Return what decides first, in SQL; null where a record has none and may."""
    without = {
        "oldest": "NULL",
        "refuse": "CAST(raise_error(concat('a record has no header of 8 bytes with its version, and"
        " missing is refuse: partition ', `partition`, ', offset ', `offset`)) AS BIGINT)",
    }[missing]
    return {
        "offset": "CAST(NULL AS BIGINT)",
        "timestamp": "unix_micros(`timestamp`)",
        # `conv` takes 64 bits for a signed number where the new base is negative.
        "header": f"IF(length({header}) = 8, CAST(conv(hex({header}), 16, -10) AS BIGINT),"
        f" {without})",
    }[strategy]


def _header(key: str) -> str:
    # Bytes need no escapes, which a session's settings may change.
    name = f"CAST(X'{key.encode().hex()}' AS STRING)"
    return f"try_element_at(filter(headers, h -> h.key = {name}), -1).value"


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
