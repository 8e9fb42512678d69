"""What the offline commands are called, tell of themselves and take as arguments.

This is the one definition of their command line. What was parsed goes to the JVM as one JSON
object, whose keys are the names of the arguments (``skipUncommitted`` for ``--skip-uncommitted``);
there each command has a case class of these fields.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from statemark import units
from statemark.command import Command, fitting, json_argument
from statemark.commands_kafka import KAFKA_COMMANDS

if TYPE_CHECKING:
    from statemark.usage import Parser


def _seconds(text: str) -> float:
    """Parse a time to watch, so that a wrong one is refused before Spark starts."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        problem = f"{text!r} is no number of seconds, 0 at least"
        raise argparse.ArgumentTypeError(problem)
    return seconds


def _add_observe(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--observe",
        metavar="SECONDS",
        type=_seconds,
        default=5.0,
        help="how long the checkpoint is watched for signs of a running query (default: 5)",
    )


def _add_dry_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--dry-run", action="store_true", help="only check, and say what would be done"
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
    _add_dry_run(parser)
    json_argument(parser)


# ---- repartition


def _positive(text: str) -> int:
    """Parse a number of partitions, so that a wrong one is refused before Spark starts."""
    number = int(text) if text.isascii() and text.isdecimal() else 0
    if number < 1:
        problem = f"{text!r} is no whole number of 1 at least"
        raise argparse.ArgumentTypeError(problem)
    return number


def _repartition_arguments(parser: argparse.ArgumentParser) -> None:
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument(
        "--partitions",
        metavar="N",
        type=_positive,
        help="the new number of partitions, 1 at least",
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
    parser.add_argument(
        "--file-sink",
        metavar="DIR",
        help="where the query writes with Spark's own file sink (parquet, json, …), whose log needs"
        " an entry of the batch",
    )
    _add_observe(parser)
    _add_dry_run(parser)
    json_argument(parser)


# ---- inspect, verify


def _verify_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--deep",
        action="store_true",
        help="also load every version from the snapshot before it, and compare the rows",
    )
    json_argument(parser)


# ---- local


# Besides --prune and --json: option, metavar, what reads its value, help.
_LOCAL_OPTIONS = (
    ("--local-dir", "D", str, "the directory (default: localDir of Spark's settings, else the cache"
     " directory that a local master uses)"),
    ("--max-age", "A", fitting(units.duration), "with --prune: how long a store that no process"
     " uses stays, such as 12h (default: localDirMaxAge, 7d)"),
    ("--max-bytes", "B", fitting(units.size), "with --prune: how much the directory may hold, such"
     " as 50g; the longest unused go first (default: localDirMaxBytes, no limit)"),
)  # fmt: skip


def _local_arguments(parser: Parser) -> None:
    given = {
        option: parser.add_argument(option, metavar=metavar, type=read, help=text)
        for option, metavar, read, text in _LOCAL_OPTIONS
    }
    parser.add_argument(
        "--stores", action="store_true", help="a line for each store, not for each query"
    )
    prune = parser.add_argument(
        "--prune",
        action="store_true",
        help="delete what no process uses and is too old or too much",
    )
    dry_run = parser.add_argument(
        "--dry-run", action="store_true", help="with --prune: only say what would be deleted"
    )
    parser.needs(prune, given["--max-age"], given["--max-bytes"], dry_run)
    json_argument(parser)


COMMANDS: Sequence[Command] = (
    Command(
        "switch",
        "move a stopped query's checkpoint to another state store provider",
        "Move the checkpoint of a stopped query between Statemark and Spark's RocksDB provider, or"
        " from Spark's HDFS-backed provider to one of them. In place; what it changes is kept in"
        " CHECKPOINT/_statemark.",
        _switch_arguments,
        (
            ("switch /data/checkpoint --to statemark", "from Spark's provider to Statemark"),
            ("switch s3a://bucket/checkpoint --to rocksdb --dry-run", "and back: what it would do"),
        ),
    ),
    Command(
        "repartition",
        "move a stopped query's state onto another number of partitions",
        "Move the state of every stateful operator of a stopped query onto another number of"
        " partitions. After an interruption run the same command again, or take it back with"
        " --rollback; until then the query refuses to start.",
        _repartition_arguments,
        (
            ("repartition /data/checkpoint --partitions 64", "onto 64 partitions"),
            ("repartition /data/checkpoint --rollback", "take an unfinished one back"),
        ),
    ),
    Command(
        "inspect",
        "show what a checkpoint holds",
        "Show operators, stores, versions, snapshots, rows and sizes of a checkpoint, and the"
        " provider that it pins. Reads logs, listings and the newest snapshots' metadata; writes"
        " nothing.",
        json_argument,
        (
            ("inspect /data/checkpoint", "what a checkpoint holds"),
            ("inspect s3a://bucket/checkpoint --json", "the same for a program"),
        ),
    ),
    Command(
        "verify",
        "check that every committed batch of a checkpoint can be restored",
        "Read every state file of a checkpoint and check it: whole, as its checksums say, leading"
        " to every retained batch, and no file nobody's. Writes nothing; the query may run"
        " meanwhile. Exits with 1 where something is wrong.",
        _verify_arguments,
        (
            ("verify /data/checkpoint", "check every file of a checkpoint"),
            ("verify /data/checkpoint --deep", "also load every version, and compare the rows"),
        ),
    ),
    Command(
        "local",
        "show, and prune, what lies in the local directory of this machine",
        "Show what queries keep on this machine's disk: number of stores, size, last use, and"
        " whether some process uses them. With --stores show each store:"
        " operator-partition-store, version on disk, checkpoint id. With --prune delete those that"
        " no process uses: the checkpoint has all that they hold.",
        _local_arguments,
        (
            ("local", "the queries in this machine's local directory"),
            ("local --stores", "each of their stores"),
            ("local --prune --max-age 12h", "delete what no process used for 12 hours"),
            ("local --prune --dry-run", "what would be deleted"),
        ),
        has_checkpoint=False,
    ),
    *KAFKA_COMMANDS,
)
