"""Source offsets as one store of a running query holds them, written with its rows."""

from __future__ import annotations

from numbers import Integral
from typing import TYPE_CHECKING

from statemark import arguments, queries, settings, stateful

if TYPE_CHECKING:
    from statemark.isolation import IsolationLevel
    from statemark.queries import Query


def committed_offset(
    query: Query,
    *,
    partition: int = 0,
    operator: int | str = 0,
    store_name: str = "default",
    isolation_level: IsolationLevel | str | None = None,
    timeout: float | str | None = None,
) -> dict[str, str | None]:
    """Return the source offsets that one store holds, as of the last committed batch.

    They lie in the store beside its rows, written in the same step, and are not asked of the
    query's offset log: `position` does that. The two are the same unless one is of another history,
    which a lookup refuses (`OffsetsDifferError`). Where the store is open nowhere, as between the
    start of a query and its first batch, or cannot be asked, as on a cluster without the plugin,
    they are those that its next load finds: the log's. Column ``held`` of format ``statemark``
    tells the two apart.

    Parameters
    ----------
    query : StreamingQuery, UUID or str
        The query, its id, or its name.
    partition : int, optional
        The partition of the operator's state.
    operator : int or str, optional
        The stateful operator: its number, or Spark's name of it.
    store_name : str, optional
        The store. Joins have four, such as ``"left-keyToNumValues"``, but for those of Spark 4.2's
        state format 3.
    isolation_level : IsolationLevel or str, optional
        At READ_UNCOMMITTED the offsets of the rows without those that the running batch has staged:
        such a view has these, and more.
    timeout : float or str, optional
        Seconds to wait for the first batch, or a duration such as ``"10s"``; 10 seconds if unset.

    Returns
    -------
    dict of str to str or None
        For the name of each source (as in `Position.sources`) the JSON of its end offset; None for
        a source that has given nothing yet. An offset of which the store holds the digest,
        as it is long, is the log's where that is the same, else ``{"sha256":"..."}``.

    Raises
    ------
    LiveReadError
        If no such query runs, it has committed no batch, or has no such partition or store.
    SettingsError
        If an argument is bad.
    MissingDependencyError
        If pyspark is not installed.

    Notes
    -----
    Source: KIP-892, ``StateStore.committedOffset``; there of the changelog's partition.

    Examples
    --------
    >>> import statemark
    >>> held = statemark.committed_offset(query, partition=1)  # doctest: +SKIP
    >>> there = statemark.position(query)  # doctest: +SKIP
    >>> held == dict(zip(there.sources, there.offsets))  # doctest: +SKIP
    True
    """
    remedy = "pass the number of a partition, from 0 on"
    arguments.refuse_type("partition", partition, Integral, remedy=remedy)
    more = {
        "partition": str(partition),
        "operatorId": str(stateful.number_of(query, operator, timeout=timeout)),
        "storeName": store_name,
    }
    if isolation_level is not None:
        more["isolationLevel"] = settings.ISOLATION_LEVEL.written(isolation_level)
    rows = queries.rows(query, what="committedOffset", timeout=timeout, more=more)
    return {row.name: row.offset for row in sorted(rows, key=lambda row: int(row.source))}
