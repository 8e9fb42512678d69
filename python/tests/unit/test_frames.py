"""Tables of live reads are pyspark's own but for their errors, also before they are read."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

import statemark
from statemark import _jvm, frames
from statemark.winners_ttl import functions_of

pytest.importorskip("pyspark")

from pyspark.errors import PySparkException
from pyspark.sql.classic.dataframe import DataFrame as Classic
from pyspark.sql.readwriter import DataFrameWriter


class Read:
    """A read of a table that counts how often it was made."""

    def __init__(self, seconds: float = 0) -> None:
        self.seconds = seconds
        self.times = 0
        self.frame = SimpleNamespace(_jdf=SimpleNamespace(cache=lambda: None), is_cached=False)

    def __call__(self) -> Any:
        self.times += 1
        time.sleep(self.seconds)
        return self.frame


def bare(kind: type) -> Any:
    """An object of pyspark's that no session is behind."""
    return object.__new__(kind)


def test_a_classic_table_is_known_as_one() -> None:
    unread: Any = frames.unread(Read(), query="q")
    for table in (frames.guarded(bare(Classic), query="q"), unread):
        assert isinstance(table, Classic)
        kind = type(table)
        assert (kind.__module__, kind.__qualname__) == (Classic.__module__, "DataFrame")
        assert functions_of(table).__name__ == "pyspark.sql.functions"


def test_a_table_of_a_connect_client_is_known_as_one() -> None:
    pytest.importorskip("grpc")
    connect = pytest.importorskip("pyspark.sql.connect.dataframe").DataFrame
    table = frames.guarded(bare(connect), query="q")
    assert type(table).__module__ == connect.__module__
    assert functions_of(table).__name__ == "pyspark.sql.connect.functions"
    with pytest.raises(statemark.SettingsError, match="app_id is missing"):
        statemark.kafka_batch(table, 0, bootstrap_servers="b:1", topic="t")


def test_what_a_sink_throws_comes_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    error = PySparkException("as Spark has it")

    def save() -> None:
        raise error

    told = _jvm.Told(statemark.UnfinishedWriteError, "Parts may show.", None)
    monkeypatch.setattr(_jvm, "told_of", lambda _: told)
    writer = bare(DataFrameWriter)
    writer._jwrite = SimpleNamespace(save=save)
    guarded: Any = frames.guarded(writer, query="q")
    with pytest.raises(PySparkException) as caught:
        guarded.save()
    assert caught.value is error
    assert type(statemark.error_of(caught.value)) is statemark.UnfinishedWriteError


def test_what_a_method_sets_before_the_read_stays() -> None:
    read = Read()
    table = frames.unread(read, query="q")
    assert table.cache() is table
    assert table.is_cached
    assert read.times == 1


def test_threads_share_one_read() -> None:
    read = Read(seconds=0.2)
    table: Any = frames.unread(read, query="q")
    together = threading.Barrier(4)

    def use(_: int) -> object:
        together.wait()
        return table._jdf

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(use, range(4))) == [read.frame._jdf] * 4
    assert read.times == 1


def test_a_read_that_fails_is_made_again() -> None:
    failing = [PySparkException("not now"), None]
    read = Read()

    def load() -> Any:
        error = failing.pop(0)
        if error is not None:
            raise error
        return read()

    table: Any = frames.unread(load, query="q")
    with pytest.raises(statemark.LiveReadError, match="not now"):
        _ = table._jdf
    assert table._jdf is read.frame._jdf


def test_what_python_looks_for_in_an_object_makes_no_read() -> None:
    read = Read()
    table = frames.unread(read, query="q")
    for name in ("__deepcopy__", "__array__"):
        assert not hasattr(table, name)
    assert read.times == 0
