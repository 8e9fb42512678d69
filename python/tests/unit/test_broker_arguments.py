"""What a command that asks brokers refuses by itself, before it fetches a jar or starts Spark."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import NoReturn

import pytest

from statemark import offline
from statemark.cli import main

AT = "--bootstrap-servers b:9092"
COMPACT = f"topic compact t {AT} --strategy"
ADDRESS = "write host:port, as broker:9092, and commas between several"
NAME = "a name has 1 to 249 letters, digits, '.', '_' and '-', and is not '.' or '..'"
VERSIONS = "there are 'timestamp', and 'header' with the header's key"

#: A command line, and what is said of it: problem, reason, remedy.
MISTAKES = {
    "doctor --kafka host": (
        "--kafka names 'host', which is no address of a broker",
        "it has no port",
        ADDRESS,
    ),
    "topic status --bootstrap-servers a:9092,b:x": (
        "--bootstrap-servers names 'b:x', which is no address of a broker",
        "'x' is no port: those are numbers of 1 to 65535",
        ADDRESS,
    ),
    "topic finish q/orders --bootstrap-servers a:65536": (
        "--bootstrap-servers names 'a:65536', which is no address of a broker",
        "'65536' is no port: those are numbers of 1 to 65535",
        ADDRESS,
    ),
    "topic forget q/orders --bootstrap-servers [::1]:0": (
        "--bootstrap-servers names '[::1]:0', which is no address of a broker",
        "'0' is no port: those are numbers of 1 to 65535",
        ADDRESS,
    ),
    "topic compact t --bootstrap-servers :9092 --strategy timestamp": (
        "--bootstrap-servers names ':9092', which is no address of a broker",
        "it has no host",
        ADDRESS,
    ),
    "doctor --kafka ,": ("--kafka is ','", "it names no broker", ADDRESS),
    "doctor --kafka b:9092 --topic or/ders": (
        "--topic is 'or/ders', and Kafka has no topic of such a name",
        NAME,
        "correct the name",
    ),
    "doctor --kafka b:9092 --topic orders --commit-topic orders": (
        "--topic and --commit-topic are both 'orders'",
        "the sink keeps its decisions in a topic of their own",
        "name two topics",
    ),
    f"topic status {AT} --commit-topic ..": (
        "--commit-topic is '..', and Kafka has no topic of such a name",
        NAME,
        "correct the name",
    ),
    f"topic compact {'t' * 250} {AT} --strategy timestamp": (
        f"TOPIC is '{'t' * 250}', and Kafka has no topic of such a name",
        NAME,
        "correct the name",
    ),
    f"{COMPACT} header": (
        "--strategy header says of no record which version it has",
        VERSIONS,
        "add --strategy header --header KEY, or --strategy timestamp",
    ),
    f"{COMPACT} timestamp --header v": (
        "--strategy timestamp --header v says of no record which version it has",
        VERSIONS,
        "add --strategy header --header KEY, or --strategy timestamp",
    ),
    f"{COMPACT} offset": (
        "--strategy offset says of no record which version it has",
        f"offsets are what Kafka itself goes by; {VERSIONS}",
        "add --strategy header --header KEY, or --strategy timestamp",
    ),
    f"{COMPACT} timestamp --missing refuse": (
        "--missing refuse means nothing with --strategy timestamp",
        "every record has a timestamp",
        "leave --missing away",
    ),
    f"{COMPACT} timestamp --commit-topic t": (
        "TOPIC and --commit-topic are both 't'",
        "the sink keeps its decisions in a topic of their own",
        "name two topics",
    ),
    "doctor --kafka b:9092 --topic t --header v": (
        "--header v says of no record which version it has",
        VERSIONS,
        "add --strategy header --header KEY, or --strategy timestamp",
    ),
    "doctor --kafka b:9092 --strategy timestamp": (
        "--strategy is given without --topic",
        "a rule is one topic's",
        "name the topic in --topic",
    ),
    f"{COMPACT} timestamp --continuous": (
        "--continuous needs --checkpoint",
        "the query keeps there what it has read, and the winners",
        "name a directory, or a URI that Spark can write to",
    ),
    f"topic status {AT} --command-config nowhere.properties": (
        "the file nowhere.properties cannot be read",
        "nothing is at this path",
        "name a file of client properties in --command-config, as security.protocol=SSL",
    ),
    "doctor --kafka b:9092 --command-config .": (
        "the file . cannot be read",
        "it is a directory",
        "name a file of client properties in --command-config, as security.protocol=SSL",
    ),
}


class StartedError(Exception):
    """Raised in place of starting spark-submit."""


@pytest.fixture(autouse=True)
def _no_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Let nothing start, and stand where no file is."""

    def refused(*_: object, **__: object) -> NoReturn:
        raise StartedError

    monkeypatch.setattr(offline.subprocess, "Popen", refused)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("line", MISTAKES)
def test_a_mistake_is_told_before_anything_starts(
    line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    problem, reason, remedy = MISTAKES[line]
    assert main([*line.split(), "--json"]) == 2
    told = capsys.readouterr()
    assert told.err == f"statemark: {problem}\n  reason: {reason}\n  remedy: {remedy}\n"
    error = {"problem": problem, "reason": reason, "remedy": remedy}
    assert json.loads(told.out)["error"] == error


def test_a_file_that_may_not_be_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also where the test's user may read every file."""
    (tmp_path / "client.properties").touch()
    monkeypatch.setattr(os, "access", lambda path, *_: "client" not in str(path))
    line = f"topic status {AT} --command-config client.properties"
    assert main(line.split()) == 2
    assert "  reason: this user may not read it\n" in capsys.readouterr().err


@pytest.mark.parametrize(
    "line",
    [
        "doctor --kafka PLAINTEXT://h:9092,[::1]:1,b:65535 --topic o.r_d-1",
        f"doctor --kafka b:9092 --command-config {os.devnull}",
        f"{COMPACT} header --header v --continuous --checkpoint c",
        f"{COMPACT} offset --change-rule",
        # Such a driver reads the files of its own machine.
        f"{COMPACT} timestamp --master yarn --conf spark.submit.deployMode=cluster"
        " --command-config /nowhere.properties",
    ],
)
def test_what_only_brokers_can_tell_is_left_to_them(line: str, bundled: str) -> None:
    with pytest.raises(StartedError):
        main([*line.split(), "--jars", "/spark-sql-kafka.jar,/kafka-clients.jar"])
