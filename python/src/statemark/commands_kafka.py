"""Offline commands that ask brokers: `topic` and `doctor --kafka`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from statemark import units
from statemark.command import Command, fitting, json_argument

if TYPE_CHECKING:
    from statemark.usage import Parser


def _commit_topic_argument(
    parser: argparse.ArgumentParser, text: str = "option commitTopic of the sink"
) -> argparse.Action:
    return parser.add_argument(
        "--commit-topic",
        metavar="T",
        default="statemark-commits",
        help=f"{text} (default: statemark-commits)",
    )


def _command_config_argument(parser: argparse.ArgumentParser) -> argparse.Action:
    return parser.add_argument(
        "--command-config",
        metavar="FILE",
        help="properties of Kafka's clients, such as how to log in; on this machine",
    )


def _servers_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--bootstrap-servers", metavar="LIST", required=True, help="host:port of a broker or more"
    )


def _brokers_arguments(parser: argparse.ArgumentParser) -> None:
    _servers_argument(parser)
    _commit_topic_argument(parser)
    _command_config_argument(parser)


def _status_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "identity",
        metavar="IDENTITY",
        nargs="?",
        help="only this sink, as APP/SINK, or those of an APP: a query's id or a txnAppId",
    )
    _brokers_arguments(parser)
    parser.add_argument(
        "--prefix", metavar="P", help="only sinks with this transactionalIdPrefix (default: any)"
    )
    json_argument(parser)


def _one_sink_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "identity", metavar="IDENTITY", help="the sink, as `statemark topic status` shows it"
    )
    _brokers_arguments(parser)
    parser.add_argument(
        "--yes", action="store_true", help="do it; without, it is only shown what would be done"
    )
    json_argument(parser)


def _forget_arguments(parser: argparse.ArgumentParser) -> None:
    _one_sink_arguments(parser)
    parser.add_argument(
        "--all",
        action="store_true",
        help="also the sink itself, for a query or a job that never runs again",
    )
    parser.add_argument(
        "--force",
        action="store_true",
        help="also where the last decision is not complete: readers never get the rest of it",
    )


def _strategy(text: str) -> str:
    if text not in ("timestamp", "header", "offset"):
        message = f"no '{text}'; there are 'timestamp', and 'header' with --header KEY"
        raise argparse.ArgumentTypeError(message)
    return text


def _header_argument(parser: argparse.ArgumentParser) -> argparse.Action:
    return parser.add_argument(
        "--header",
        metavar="KEY",
        help="with --strategy header: the header with the version, a signed number of 8 bytes",
    )


def _compact_arguments(parser: Parser) -> None:
    parser.add_argument("topic", metavar="TOPIC", help="a compacted topic")
    _servers_argument(parser)
    parser.add_argument(
        "--strategy",
        type=_strategy,
        metavar="{timestamp,header}",
        required=True,
        help="what the version of a record is; the highest wins",
    )
    _header_argument(parser)
    parser.add_argument(
        "--missing",
        choices=("oldest", "refuse"),
        default="oldest",
        help="a record without that header loses against all that have it, as in KIP-280 (default),"
        " or ends the repair: before it has written anything, but for one that comes meanwhile",
    )
    _commit_topic_argument(parser, "takes the rule of the topic: option commitTopic of the sink")
    parser.add_argument(
        "--change-rule",
        action="store_true",
        help="by another strategy, or header, than the topic was repaired until now; with"
        " --strategy offset only remove that rule",
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--dry-run", action="store_true", help="only say which keys are wrong")
    continuous = what.add_argument(
        "--continuous",
        action="store_true",
        help="run a query that repairs the topic until it is stopped",
    )
    parser.add_argument(
        "--set-lag",
        action="store_true",
        help="raise the topic's min.compaction.lag.ms, so that the cleaner stands still, and put it"
        " back at the end",
    )
    parser.add_argument(
        "--lateness",
        metavar="D",
        type=fitting(units.duration),
        help="by how much producers' timestamps are older, at most, than the time at which they"
        " write, such as 1h: then a lag of that, 10 minutes, and the brokers' longest transaction"
        " (15 minutes by default) is enough",
    )
    parser.add_argument(
        "--scratch-dir",
        metavar="DIR",
        help="takes the table of keys, of about 70 bytes each (default: the temporary directory)",
    )
    checkpoint = parser.add_argument(
        "--checkpoint", metavar="DIR", help="with --continuous: of the query"
    )
    trigger = parser.add_argument(
        "--trigger",
        metavar="D",
        type=fitting(units.duration),
        default="10s",
        help="with --continuous: time between batches (default: 10s)",
    )
    parser.needs(continuous, checkpoint, trigger)
    _command_config_argument(parser)
    json_argument(parser)


def _doctor_arguments(parser: Parser) -> None:
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "checkpoint",
        metavar="CHECKPOINT",
        nargs="?",
        # Left out where it is not given: the command that asks brokers does not take it.
        default=argparse.SUPPRESS,
        help="a query's checkpoint: a path, or a URI for Spark",
    )
    kafka = what.add_argument(
        "--kafka",
        metavar="LIST",
        help="check brokers instead: host:port of one or more; the options of brokers belong to it",
    )
    topic = parser.add_argument(
        "--topic", metavar="T", help="an output topic, to be checked as well"
    )
    prefix = parser.add_argument(
        "--prefix",
        metavar="P",
        default="statemark",
        help="option transactionalIdPrefix of the sink (default: statemark)",
    )
    commit_topic = _commit_topic_argument(parser)
    strategy = parser.add_argument(
        "--strategy",
        type=_strategy,
        metavar="{timestamp,header}",
        help="the rule by which --topic is to be repaired (default: any)",
    )
    rule = (strategy, _header_argument(parser))
    parser.needs(kafka, topic, prefix, commit_topic, *rule, _command_config_argument(parser))
    json_argument(parser)


# Of examples.
_AT = "--bootstrap-servers kafka:9092"

KAFKA_COMMANDS: Sequence[Command] = (
    Command(
        "topic status",
        "show what the exactly-once sink knows of its topics",
        "Show every sink of a commit topic: its query, what was decided last and whether all of it"
        " is with the readers, open transactions, also those of others that hold readers back, and"
        " what the next start does. Changes nothing.",
        _status_arguments,
        (
            (f"topic status {_AT}", "every sink of the commit topic"),
            (
                f"topic status 7c1d9f4e/orders {_AT} --json",
                "one sink, for a program",
            ),
        ),
        has_checkpoint=False,
        asks_kafka=True,
    ),
    Command(
        "topic finish",
        "complete what a sink has decided",
        "Complete the last decision of a sink whose query does not come back to do it, and end its"
        " open transactions. A query that runs for the sink fails. Shows what it would do, and does"
        " it with --yes. Exits with 1 where something is left to do.",
        _one_sink_arguments,
        (
            (f"topic finish 7c1d9f4e/orders {_AT}", "what would be done"),
            (f"topic finish 7c1d9f4e/orders {_AT} --yes", "do it"),
        ),
        has_checkpoint=False,
        asks_kafka=True,
    ),
    Command(
        "topic forget",
        "remove what a sink has decided",
        "Remove what was decided by a sink, so that its query writes the next batch whatever its"
        " number: rows may be written again. Refused while the last decision is not complete. A"
        " query that runs for the sink fails. Shows what it would do, and does it with --yes.",
        _forget_arguments,
        (
            (
                f"topic forget 7c1d9f4e/orders {_AT} --yes",
                "write the next batch whatever its number",
            ),
            (
                f"topic forget 7c1d9f4e/orders {_AT} --all --yes",
                "the sink itself as well",
            ),
        ),
        has_checkpoint=False,
        asks_kafka=True,
    ),
    Command(
        "topic compact",
        "repair a compacted topic that keeps other records than KIP-280 would",
        "Find the keys of a topic whose last record, which Kafka's compaction keeps, is not the one"
        " with the highest version, and write the right one once more. With --continuous a query"
        " does so until it is stopped. Exits with 1 where a dry run has found wrong keys.",
        _compact_arguments,
        (
            (
                f"topic compact prices {_AT} --strategy timestamp --dry-run",
                "which keys are wrong",
            ),
            (
                f"topic compact prices {_AT} --strategy header --header version --set-lag",
                "repair them, with the cleaner held back meanwhile",
            ),
        ),
        has_checkpoint=False,
        asks_kafka=True,
        needs_session=True,
    ),
    Command(
        "doctor",
        "tell what is odd on this machine, in settings, with a checkpoint, or with brokers",
        "Check Java, Spark, the jar, Spark's settings, memory and the local directory; with a"
        " CHECKPOINT also whether its query can be started, and what a restart reads. Changes"
        " nothing. With --kafka check brokers, topics and access for the exactly-once sink instead;"
        " writes no row. Exits with 1 for findings; with --kafka where there is a problem.",
        _doctor_arguments,
        (
            ("doctor", "is this machine ready to start a query"),
            ("doctor /data/checkpoint", "can the query be started, and what does that cost"),
            ("doctor /data/checkpoint --properties-file job.conf --json", "for a program"),
            ("doctor --kafka kafka:9092 --topic orders", "are brokers fit for the sink"),
        ),
        has_checkpoint=False,
        asks_kafka=True,
        needs_session=True,
    ),
)
