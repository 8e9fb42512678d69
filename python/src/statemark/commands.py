"""What the offline commands are called, tell of themselves and take as arguments.

This is the one definition of their command line. What was parsed goes to the JVM as one JSON
object, whose keys are the names of the arguments (``skipUncommitted`` for ``--skip-uncommitted``);
there each command has a case class of these fields.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Command:
    """One subcommand.

    Parameters
    ----------
    name : str
        Its name, here and in the JVM; a second word is that of a subcommand.
    summary : str
        One line for the list of commands.
    description : str
        A paragraph for its help.
    add_arguments : callable
        Adds its arguments besides the checkpoint to a parser.
    has_checkpoint : bool
        Whether it works on a checkpoint.
    asks_kafka : bool
        Whether it talks to brokers, with Kafka's client library and without a session of Spark's.
    """

    name: str
    summary: str
    description: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    has_checkpoint: bool = True
    asks_kafka: bool = False


def _add_observe(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--observe",
        metavar="SECONDS",
        type=float,
        default=5.0,
        help="how long the checkpoint is watched for signs of a running query (default: 5)",
    )


# ---- switch


def _switch_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--to", choices=("statemark", "rocksdb"), required=True, help="the provider to use next"
    )
    _add_observe(parser)
    parser.add_argument(
        "--force",
        action="store_true",
        help="also where the query seems to run, or its last batch is not committed",
    )


# ---- repartition


def _repartition_arguments(parser: argparse.ArgumentParser) -> None:
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument(
        "--partitions", metavar="N", type=int, help="the new number of partitions, 1 at least"
    )
    what.add_argument(
        "--rollback", action="store_true", help="take back a repartition that did not finish"
    )
    parser.add_argument(
        "--skip-uncommitted",
        action="store_true",
        help="give up a last batch that is not committed: the query reads its input again, and a"
        " sink may get rows twice",
    )
    _add_observe(parser)


# ---- inspect, verify


def _json_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="one JSON object instead of text")


def _verify_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--deep",
        action="store_true",
        help="also load every version from the snapshot before it, and compare the rows",
    )
    _json_argument(parser)


# ---- local

# Besides --prune and --json: option, metavar, help.
_LOCAL_OPTIONS = (
    ("--local-dir", "D", "the directory (default: localDir of Spark's settings, else the cache"
     " directory that a local master uses)"),
    ("--max-age", "A", "with --prune: how long a store that no process uses stays, such as 12h"
     " (default: localDirMaxAge, 7d)"),
    ("--max-bytes", "B", "with --prune: how much the directory may hold, such as 50g; the longest"
     " unused go first (default: localDirMaxBytes, no limit)"),
)  # fmt: skip


def _local_arguments(parser: argparse.ArgumentParser) -> None:
    for option, metavar, text in _LOCAL_OPTIONS:
        parser.add_argument(option, metavar=metavar, help=text)
    parser.add_argument(
        "--prune",
        action="store_true",
        help="delete what no process uses and is too old or too much",
    )
    _json_argument(parser)


# ---- topic, doctor


def _commit_topic_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--commit-topic",
        metavar="T",
        default="statemark-commits",
        help="option commitTopic of the sink (default: statemark-commits)",
    )


def _command_config_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--command-config",
        metavar="FILE",
        help="properties of Kafka's clients, such as how to log in; on this machine",
    )


def _brokers_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--bootstrap-servers", metavar="LIST", required=True, help="host:port of a broker or more"
    )
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
    _json_argument(parser)


def _one_sink_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "identity", metavar="IDENTITY", help="the sink, as `statemark topic status` shows it"
    )
    _brokers_arguments(parser)
    parser.add_argument(
        "--yes", action="store_true", help="do it; without, it is only shown what would be done"
    )


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


def _doctor_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--kafka", metavar="LIST", required=True, help="host:port of a broker or more"
    )
    parser.add_argument("--topic", metavar="T", help="an output topic, to be checked as well")
    parser.add_argument(
        "--prefix",
        metavar="P",
        default="statemark",
        help="option transactionalIdPrefix of the sink (default: statemark)",
    )
    _commit_topic_argument(parser)
    _command_config_argument(parser)
    _json_argument(parser)


COMMANDS: Sequence[Command] = (
    Command(
        "switch",
        "move a stopped query's checkpoint to another state store provider",
        "Move the checkpoint of a stopped query between Statemark and Spark's RocksDB provider, or"
        " from Spark's HDFS-backed provider to one of them. In place; what it changes is kept in"
        " CHECKPOINT/_statemark.",
        _switch_arguments,
    ),
    Command(
        "repartition",
        "move a stopped query's state onto another number of partitions",
        "Move the state of every stateful operator of a stopped query onto another number of"
        " partitions. After an interruption run the same command again, or take it back with"
        " --rollback; until then the query refuses to start.",
        _repartition_arguments,
    ),
    Command(
        "inspect",
        "show what a checkpoint holds",
        "Show operators, stores, versions, snapshots, rows and sizes of a checkpoint, and the"
        " provider that it pins. Reads logs, listings and the newest snapshots' metadata; writes"
        " nothing.",
        _json_argument,
    ),
    Command(
        "verify",
        "check that every committed batch of a checkpoint can be restored",
        "Read every state file of a checkpoint and check it: whole, as its checksums say, leading"
        " to every retained batch, and no file nobody's. Writes nothing; the query may run"
        " meanwhile. Exits with 1 where something is wrong.",
        _verify_arguments,
    ),
    Command(
        "local",
        "show, and prune, what lies in the local directory of this machine",
        "Show the stores that queries keep on this machine's disk: query, operator-partition-store,"
        " version on disk, checkpoint id, size, last use, and whether some process uses it. With"
        " --prune delete those that no process uses: the checkpoint has all that they hold.",
        _local_arguments,
        has_checkpoint=False,
    ),
    Command(
        "topic status",
        "show what the exactly-once sink knows of its topics",
        "Show every sink of a commit topic: its query, what was decided last and whether all of it"
        " is with the readers, open transactions, also those of others that hold readers back, and"
        " what the next start does. Changes nothing.",
        _status_arguments,
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
        has_checkpoint=False,
        asks_kafka=True,
    ),
    Command(
        "doctor",
        "check whether Kafka is fit for the exactly-once sink",
        "Check clients, brokers, transactions, the commit topic, an output topic and access, each"
        " with ok, warning or problem and what to do. Writes no row. Exits with"
        " 1 where there is a problem.",
        _doctor_arguments,
        has_checkpoint=False,
        asks_kafka=True,
    ),
)
