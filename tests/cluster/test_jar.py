"""The jar on the driver alone: a query says so, before any of its tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.processes import wait_for
from support.session import STATE_STORE, STATEMARK_PROVIDER, statemark_jar
from support.streams import events
from support.versions import renamed

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from support.cluster import Cluster, Stream

#: Without it executors start, and their tasks fail; with it they do not start.
PLUGIN = {"spark.plugins": "statemark.spark.StatemarkPlugin"}


@pytest.mark.parametrize("plugin", [{}, PLUGIN], ids=["provider", "plugin"])
def test_executors_without_the_jar(
    cluster_of: Callable[[int], Cluster], stream: Stream, plugin: dict[str, str]
) -> None:
    application = cluster_of(1).start(
        awaits=False,
        **{
            "spark.driver.extraClassPath": statemark_jar(),
            f"{STATE_STORE}.providerClass": STATEMARK_PROVIDER,
        },
        **plugin,
    )
    application.start(stream, partitions=1, checkpoint_format="1")
    stream.arrivals.add(events(0, 50))
    kind, said = wait_for("the end of the query", lambda: application.call("failure"))
    first = said.partition("=== Streaming Query ===")[0]
    for words in ("do not have Statemark's jar", "reason: ", "remedy: ", str(statemark_jar())):
        assert words in first, first
    for way in ("--jars", "spark.jars", "statemark.configure"):
        assert way in first, first
    assert kind == "InvalidInputError"


def test_executors_that_have_the_jar_themselves(
    cluster_of: Callable[[int], Cluster], stream: Stream, tmp_path: Path
) -> None:
    """No setting of the driver says that executors have it: they are asked."""
    cluster = cluster_of(1)
    other = renamed(statemark_jar(), "0.0.9", tmp_path / "installed")
    application = cluster.start(**{"spark.executor.extraClassPath": other})
    application.start(stream, partitions=1, checkpoint_format="1")
    stream.arrivals.add(events(0, 50))
    kind, said = wait_for("the end of the query", lambda: application.call("failure"))
    assert "has the jar of Statemark 0.0.9, and the driver that of " in said, said
    assert "remedy: replace that jar" in said
    assert kind == "InvalidInputError"
    application.end()

    application = cluster.start(
        **{
            "spark.driver.extraClassPath": statemark_jar(),
            "spark.executor.extraClassPath": statemark_jar(),
            f"{STATE_STORE}.providerClass": STATEMARK_PROVIDER,
        }
    )
    application.start(stream, partitions=1, checkpoint_format="1")
    stream.arrivals.add(events(0, 50))
    wait_for("the first batch", lambda: application.check() and stream.committed >= 0)
    application.finish()
