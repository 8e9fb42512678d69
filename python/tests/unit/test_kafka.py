"""What the functions for Kafka ask of Spark; tests/kafka/test_python.py has a broker as well."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

import statemark
from statemark import SettingsError


class Asked:
    """A frame or session, and its readers and writers, that keeps what it is asked for."""

    def __init__(self) -> None:
        self.calls: dict[str, Any] = {}
        self.writeStream = self.write = self.readStream = self.read = self

    def format(self, name: str) -> Asked:
        self.calls["format"] = name
        return self

    def mode(self, name: str) -> Asked:
        self.calls["mode"] = name
        return self

    def option(self, name: str, value: object) -> Asked:
        self.calls[name] = str(value)
        return self

    def options(self, **options: str) -> Asked:
        self.calls |= options
        return self

    def save(self) -> None:
        self.calls["is"] = "saved"

    def load(self) -> Asked:
        self.calls["is"] = "loaded"
        return self

    def collect(self) -> list[Any]:
        return [SimpleNamespace(batch_id=4)]


_IS_TABLE = {"__module__": "pyspark.sql.dataframe"}
DataFrame: Any = type("DataFrame", (Asked,), {**_IS_TABLE, "isStreaming": True})
Batch: Any = type("DataFrame", (Asked,), {**_IS_TABLE, "isStreaming": False})
SparkSession: Any = type("SparkSession", (Asked,), {"__module__": "pyspark.sql.session"})


def test_sink() -> None:
    df = DataFrame()
    writer: Any = statemark.kafka_sink(
        df,
        bootstrap_servers=["a:1", "b:2"],
        topic="t",
        sink_name="s",
        producers_per_executor=2,
        kafka_consumer_group="g",
        options={"kafka.linger.ms": 20, "allowShortCompactionLag": True},
    )
    assert writer.calls == {
        "format": "statemark-kafka",
        "kafka.bootstrap.servers": "a:1,b:2",
        "topic": "t",
        "sinkName": "s",
        "producersPerExecutor": "2",
        "kafkaConsumerGroup": "g",
        "kafka.linger.ms": "20",
        "allowShortCompactionLag": "true",
    }


def test_batch() -> None:
    df = Batch()
    statemark.kafka_batch(df, 7, bootstrap_servers="a:1", app_id="app", open_sinks=2)
    assert df.calls == {
        "format": "statemark-kafka",
        "mode": "append",
        "kafka.bootstrap.servers": "a:1",
        "txnVersion": "7",
        "txnAppId": "app",
        "openSinks": "2",
        "is": "saved",
    }


@pytest.mark.parametrize("streaming", [True, False])
def test_source_reads_what_is_committed(streaming: bool) -> None:
    spark = SparkSession()
    statemark.kafka_source(spark, bootstrap_servers="a:1", topics=["t", "u"], streaming=streaming)
    assert spark.calls == {
        "format": "kafka",
        "kafka.bootstrap.servers": "a:1",
        "subscribe": "t,u",
        "kafka.isolation.level": "read_committed",
        "is": "loaded",
    }


def test_a_wait() -> None:
    spark, there = SparkSession(), statemark.Position(7, ('{"in":{"0":3}}', None))
    servers = {"bootstrap_servers": "a:1", "commit_topic": "c"}
    assert statemark.wait_for(spark, there, query="totals", sink_name="s", **servers) == 4
    assert spark.calls == {
        "format": "statemark-kafka",
        "kafka.bootstrap.servers": "a:1",
        "commitTopic": "c",
        "sink": "totals/s",
        "positionBound": '["{\\"in\\":{\\"0\\":3}}", null]',
        "is": "loaded",
    }
    statemark.wait_for(spark, there, query=UUID(int=0), timeout=1.5, **servers)
    assert spark.calls["sink"] == str(UUID(int=0))
    assert spark.calls["timeout"] == "1500ms"


def test_a_wait_that_is_refused() -> None:
    there: Any = statemark.Position(7, ())
    for position, more, problem in [
        ('{"in":{"0":3}}', {}, "bad position "),
        (there, {"timeout": -1}, "bad timeout -1"),
        (there, {"sink_name": ""}, "sink_name is empty"),
        (there, {"options": {"Timeout": 3}, "timeout": 3}, "option 'Timeout' is given twice"),
    ]:
        with pytest.raises(SettingsError, match=problem):
            statemark.wait_for(SparkSession(), position, query="q", bootstrap_servers="a:1", **more)


def test_what_is_refused() -> None:
    df = DataFrame()
    with pytest.raises(SettingsError, match="bootstrap_servers is empty"):
        statemark.kafka_sink(df, bootstrap_servers=[])
    with pytest.raises(SettingsError, match="option 'KAFKA.isolation.level' is given twice"):
        statemark.kafka_source(
            SparkSession(),
            bootstrap_servers="a:1",
            topics="t",
            options={"KAFKA.isolation.level": "x"},
        )
    with pytest.raises(SettingsError, match="batch_id=-1 is refused"):
        statemark.kafka_batch(df, -1, bootstrap_servers="a:1")


def test_a_batch_of_spark_connect_says_whose_it_is() -> None:
    remote: Any = type("DataFrame", (), {"__module__": "pyspark.sql.connect.dataframe"})()
    with pytest.raises(SettingsError, match="app_id is missing"):
        statemark.kafka_batch(remote, 0, bootstrap_servers="a:1")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"options": {"TXNVERSION": 3}}, "option 'TXNVERSION' is given twice"),
        ({"app_id": "a", "options": {"txnappid": "b"}}, "option 'txnappid' is given twice"),
        ({"app_id": " "}, "app_id is empty"),
        ({"topic": ""}, "topic is empty"),
    ],
)
def test_batch_is_refused(arguments: dict[str, Any], problem: str) -> None:
    df = DataFrame()
    with pytest.raises(SettingsError, match=problem):
        statemark.kafka_batch(df, 7, bootstrap_servers="a:1", **arguments)
    assert df.calls == {}
