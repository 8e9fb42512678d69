"""Arguments of commands that ask brokers: what no broker has to be asked for is refused here.

The virtual machine refuses the same, but only once Kafka's client is fetched and Spark has started.
"""

from __future__ import annotations

import argparse
import re

from statemark import arguments
from statemark.errors import SettingsError

# As Kafka has it: `org.apache.kafka.common.internals.Topic`.
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_PORT = re.compile(r"[0-9]{1,5}")
_LAST_PORT = 65535


def refuse_unfit(args: argparse.Namespace, *, is_driver_here: bool) -> None:
    """Refuse arguments that are wrong whatever the brokers say.

    Parameters
    ----------
    args : argparse.Namespace
        Those of a command that asks brokers.
    is_driver_here : bool
        Whether the command runs on this machine, and reads its files.

    Raises
    ------
    SettingsError
        If an address has no port, or a bad one; if a topic has a name that Kafka has no topic of;
        if the file of ``--command-config`` cannot be read; if options contradict each other.
    """
    if args.command == "doctor":
        refuse_addresses("--kafka", args.kafka)
        topics = {"--topic": args.topic, "--commit-topic": args.commit_topic}
        if args.strategy is not None or args.header is not None:
            _refuse_rule(args)
    elif args.command == "topic compact":
        refuse_addresses("--bootstrap-servers", args.bootstrap_servers)
        topics = {"TOPIC": args.topic, "--commit-topic": args.commit_topic}
        _refuse_compaction(args)
    else:
        refuse_addresses("--bootstrap-servers", args.bootstrap_servers)
        topics = {"--commit-topic": args.commit_topic}
    _refuse_topics(topics)
    if args.command_config is not None and is_driver_here:
        _refuse_file(args.command_config)


def refuse_addresses(option: str, text: str) -> None:
    """Refuse addresses of brokers that are none, as an option or an argument gives them."""
    remedy = "write host:port, as broker:9092, and commas between several"
    addresses = [address.strip() for address in text.split(",") if address.strip()]
    if not addresses:
        problem = f"{option} is {text!r}"
        raise SettingsError(problem, reason="it names no broker", remedy=remedy)
    for address in addresses:
        reason = _why_no_address(address)
        if reason:
            problem = f"{option} names {address!r}, which is no address of a broker"
            raise SettingsError(problem, reason=reason, remedy=remedy)


def _why_no_address(address: str) -> str | None:
    host, colon, port = address.rpartition(":")
    if not colon:
        return "it has no port"
    if not host:
        return "it has no host"
    if not _PORT.fullmatch(port) or not 0 < int(port) <= _LAST_PORT:
        return f"{port!r} is no port: those are numbers of 1 to {_LAST_PORT}"
    return None


def _refuse_topics(topics: dict[str, str | None]) -> None:
    """Refuse names, by their options. Blanks around a name do not count, in the JVM neither."""
    names = {option: name.strip() for option, name in topics.items() if name is not None}
    for option, name in names.items():
        if not _TOPIC.fullmatch(name) or name in (".", ".."):
            problem = f"{option} is {name!r}, and Kafka has no topic of such a name"
            reason = "a name has 1 to 249 letters, digits, '.', '_' and '-', and is not '.' or '..'"
            raise SettingsError(problem, reason=reason, remedy="correct the name")
    if len(set(names.values())) < len(names):
        problem = f"{' and '.join(names)} are both {next(iter(names.values()))!r}"
        reason = "the sink keeps its decisions in a topic of their own"
        raise SettingsError(problem, reason=reason, remedy="name two topics")


def _refuse_rule(args: argparse.Namespace) -> None:
    if args.strategy in ("offset", None) or (args.strategy == "header") != bool(args.header):
        words = {"--strategy": args.strategy, "--header": args.header}
        given = " ".join(f"{name} {value}" for name, value in words.items() if value)
        problem = f"{given} says of no record which version it has"
        kafkas = "offsets are what Kafka itself goes by; " if args.strategy == "offset" else ""
        raise SettingsError(
            problem,
            reason=f"{kafkas}there are 'timestamp', and 'header' with the header's key",
            remedy="add --strategy header --header KEY, or --strategy timestamp",
        )
    if args.command == "doctor" and args.topic is None:
        problem = "--strategy is given without --topic"
        reason, remedy = "a rule is one topic's", "name the topic in --topic"
        raise SettingsError(problem, reason=reason, remedy=remedy)


def _refuse_compaction(args: argparse.Namespace) -> None:
    if args.strategy == "offset" and args.change_rule and not args.header and not args.continuous:
        return
    _refuse_rule(args)
    if args.missing == "refuse" and args.strategy != "header":
        problem = "--missing refuse means nothing with --strategy timestamp"
        reason, remedy = "every record has a timestamp", "leave --missing away"
        raise SettingsError(problem, reason=reason, remedy=remedy)
    if args.continuous and args.checkpoint is None:
        problem = "--continuous needs --checkpoint"
        raise SettingsError(
            problem,
            reason="the query keeps there what it has read, and the winners",
            remedy="name a directory, or a URI that Spark can write to",
        )


def _refuse_file(file: str) -> None:
    reason = arguments.why_unreadable(file)
    if reason:
        problem = f"the file {file} cannot be read"
        remedy = "name a file of client properties in --command-config, as security.protocol=SSL"
        raise SettingsError(problem, reason=reason, remedy=remedy)
