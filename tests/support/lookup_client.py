"""Lookups by key over both ways to a query: in this process, and from a Spark Connect client.

As a script it is that client. Its argument is the address of the server; it takes pickled requests
from standard input, writes a pickled answer for each to standard output, and ends with its input.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

import statemark
from pyspark.sql import SparkSession

from support.session import environment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

_SERVICE = "org.apache.spark.sql.connect.service.SparkConnectService"


def answers(query_id: str, keys: list[Any], **options: Any) -> list[str] | str:
    """Look keys up; return their rows, or what the error says.

    Rows are text here, as a NaN in Python equals none.
    """
    try:
        return [repr(row) for row in statemark.get_many(query_id, keys, **options)]
    except statemark.LiveReadError as e:
        return str(e)


def failure(query: str, **options: Any) -> tuple[str, bool, str] | None:
    """Read a query as a table; return what it raises: class, whether to retry, and text."""
    try:
        statemark.live(query, **options).where("partition_id >= 0").groupBy().count().collect()
    except statemark.StatemarkError as e:
        return type(e).__name__, e.is_retryable, str(e)
    return None


def kinds(query: str, key: Any = 1, **options: Any) -> list[str]:
    """Return classes of what reads raise: a lookup, a position, a lookup by an operator's name."""

    def kind(read: Callable[[], object]) -> str:
        try:
            return f"none: {read()}"
        except statemark.StatemarkError as e:
            return type(e).__name__

    by_name = statemark.state(query, operator="stateStoreSave")
    return [
        kind(read)
        for read in (
            lambda: statemark.get(query, key, **options),
            lambda: statemark.position(query),
            lambda: by_name.get(1),
        )
    ]


@contextmanager
def connect_server(spark: SparkSession) -> Iterator[str]:
    """Serve Spark Connect clients from the application of a session; give the address."""
    jvm: Any = spark._jvm
    conf = environment(spark)
    conf.set("spark.connect.grpc.binding.address", "127.0.0.1")
    conf.set("spark.connect.grpc.binding.port", "0")
    # The object itself: its class has no static method for the port.
    service = getattr(getattr(jvm, f"{_SERVICE}$"), "MODULE$")
    service.start(spark.sparkContext._jsc.sc())
    none = jvm.scala.Option.empty()
    try:
        yield f"sc://127.0.0.1:{service.localPort()}"
    finally:
        service.stop(none, none)


class LookupClient:
    """
    A Spark Connect client in a process and a session of its own.

    Parameters
    ----------
    url
        Address of the server.
    log
        Takes what it says.
    """

    def __init__(self, url: str, log: Path) -> None:
        # Only the client needs it, which is this file.
        from support.cluster import Daemon

        self._daemon = Daemon(
            [sys.executable, __file__, url],
            log,
            {},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def answers(self, query_id: str, keys: list[Any], **options: Any) -> list[str] | str:
        """Do there what the function of that name does here."""
        found: list[str] | str = self._call("answers", (query_id, keys), options)
        return found

    def failure(self, query: str, **options: Any) -> tuple[str, bool, str] | None:
        """Do there what the function of that name does here."""
        found: tuple[str, bool, str] | None = self._call("failure", (query,), options)
        return found

    def kinds(self, query: str, *key: Any, **options: Any) -> list[str]:
        """Do there what the function of that name does here."""
        found: list[str] = self._call("kinds", (query, *key), options)
        return found

    def set(self, key: str, value: str) -> None:
        """Set a setting of its session."""
        self._call("set", (key, value), {})

    def kill(self) -> None:
        """End it."""
        self._daemon.kill()

    def _call(self, name: str, positional: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
        process = self._daemon.process
        assert process.stdin
        assert process.stdout
        pickle.dump((name, positional, named), process.stdin)
        process.stdin.flush()
        try:
            return pickle.load(process.stdout)
        except EOFError:
            raise AssertionError(self._daemon.log.read_text()[-4000:]) from None


def main(url: str) -> None:
    """Answer requests until there are no more."""
    spark = SparkSession.builder.remote(url).create()
    calls = {"answers": answers, "failure": failure, "kinds": kinds, "set": spark.conf.set}
    while True:
        try:
            name, positional, named = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        try:
            answer = calls[name](*positional, **named)
        except Exception as e:  # noqa: BLE001 - the test is told
            answer = f"{type(e).__name__}: {str(e)[:300]}"
        pickle.dump(answer, sys.stdout.buffer)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main(sys.argv[1])
