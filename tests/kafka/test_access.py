"""Users of the secured listener: they log in by SASL over TLS, and may do what lists say."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from support import sinks, topics
from support.brokers import USERS, Brokers, client_settings
from support.processes import LIMIT_S, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LOG4J = """
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %p %c: %m%n%ex
logger.kafka.name = org.apache.kafka
logger.kafka.level = info
rootLogger.level = warn
rootLogger.appenderRef.stdout.ref = console
"""
ALLOWED = (AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    with Brokers(tmp_path_factory.mktemp("secured"), secured=True) as brokers:
        yield brokers


def allow(brokers: Brokers, kind: ResourceType, name: str, *operations: AclOperation) -> None:
    """Let the user `writer` do something with what begins with a name, and wait until it may."""
    admin = AdminClient(client_settings(brokers.bootstrap))
    bindings = [
        AclBinding(
            kind,
            name,
            ResourcePatternType.PREFIXED,
            "User:writer",
            "*",
            operation,
            AclPermissionType.ALLOW,
        )
        for operation in operations
    ]
    for created in admin.create_acls(bindings).values():
        created.result(LIMIT_S)


def test_a_user_may_do_what_lists_say(secured: Brokers) -> None:
    topics.create(secured.bootstrap, "listed")
    writer = secured.login()
    with pytest.raises(KafkaException, match=r"(?i)authoriz"):
        topics.producer(secured.bootstrap, "listed", writer)
    allow(secured, ResourceType.TOPIC, "listed", *ALLOWED)
    allow(secured, ResourceType.TRANSACTIONAL_ID, "listed", AclOperation.WRITE)
    allow(secured, ResourceType.GROUP, "reads", AclOperation.READ)
    producer = wait_for("rights", lambda: _producer_of(secured, "listed"))
    producer.begin_transaction()
    producer.produce("listed", b"value")
    producer.commit_transaction()
    topics.settle(secured.bootstrap, "listed", writer)
    assert [row.value for row in topics.read(secured.bootstrap, "listed", client=writer)] == [
        b"value"
    ]
    with pytest.raises(KafkaException):
        topics.read(secured.bootstrap, "listed", client=secured.login("stranger"))


def _producer_of(secured: Brokers, name: str) -> Producer | None:
    try:
        return topics.producer(secured.bootstrap, name, secured.login())
    except KafkaException:
        return None


def test_the_sink_logs_in_and_its_log_has_no_password(secured: Brokers, tmp_path: Path) -> None:
    topics.create(secured.bootstrap, "logged", partitions=2)
    for name in ("logged", "statemark-commits"):
        allow(
            secured,
            ResourceType.TOPIC,
            name,
            *ALLOWED,
            AclOperation.DESCRIBE_CONFIGS,
            AclOperation.CREATE,
        )
    allow(secured, ResourceType.TRANSACTIONAL_ID, "statemark.", AclOperation.WRITE)
    login = {f"kafka.{key}": value for key, value in secured.java_login().items()}
    job = sinks.Job(tmp_path / "job", secured.bootstrap, "logged")
    job.options = login
    # A session of Python's sets the level of all loggers that have none of their own.
    log4j = tmp_path / "log4j2.properties"
    log4j.write_text(LOG4J)
    java = f"{sinks.probed(job.probe)} -Dlog4j2.configurationFile={log4j}"
    job.conf["spark.driver.extraJavaOptions"] = java
    job.add()
    # The second run recovers, with every kind of client.
    assert job.run(die_at="before-commit-log", fails=False) != 0
    assert job.died("before-commit-log"), job.log()
    assert job.run(fails=False) == 0, job.log()
    assert job.judge().is_right
    for run in (1, 2):
        log = job.log(run)
        assert "SASL_SSL" in log, "clients say at INFO what their settings are"
        assert not [password for password in USERS.values() if password in log]
