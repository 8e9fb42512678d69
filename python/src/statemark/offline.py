"""Commands on what a query keeps, while it does not run: a JVM that spark-submit starts.

Each has its parser here, as one entry of ``_COMMANDS``, and its work in the JVM package
``statemark.spark.offline``.
"""

from __future__ import annotations

import argparse
import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from statemark.errors import MissingDependencyError
from statemark.jars import jar_path, spark_home

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

_MAIN = "statemark.spark.offline.Main"
_QUIET = Path(__file__).parent / "log4j2-quiet.properties"
# Exit codes of the JVM. Any other is an error too: spark-submit has its own.
_EXIT_CODES = {0: 0, 10: 1}

_SUBMIT_OPTIONS = {
    "--master": ("URL", "where Spark runs (default: that of spark-defaults.conf, else local[*])"),
    "--conf": ("KEY=VALUE", "a setting of Spark; may be given more than once"),
    "--properties-file": ("FILE", "settings of Spark instead of spark-defaults.conf"),
    "--packages": ("LIST", "Maven coordinates, such as those of the file system's classes"),
    "--repositories": ("LIST", "where to look for the packages besides Maven Central"),
    "--jars": ("LIST", "jars for driver and executors"),
}


@dataclass(frozen=True)
class _Command:
    """One subcommand.

    Parameters
    ----------
    name : str
        Its name, here and in the JVM.
    summary : str
        One line for the list of commands.
    description : str
        A paragraph for its help.
    add_arguments : callable
        Adds its arguments besides the checkpoint to a parser.
    words : callable
        Its arguments besides the checkpoint as the JVM reads them.
    has_checkpoint : bool
        Whether it works on a checkpoint.
    """

    name: str
    summary: str
    description: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    words: Callable[[argparse.Namespace], list[str]]
    has_checkpoint: bool = True


def add_parsers(commands: Subparsers) -> None:
    """Add the parsers of all offline commands.

    Parameters
    ----------
    commands : argparse subparsers
        Those of the command `statemark`.
    """
    parent = _parent()
    for command in _COMMANDS:
        parser = commands.add_parser(
            command.name,
            parents=[parent],
            help=command.summary,
            description=command.description,
        )
        if command.has_checkpoint:
            text = "a path, or a URI for Spark"
            parser.add_argument("checkpoint", metavar="CHECKPOINT", help=text)
        command.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Run the command that was parsed.

    Parameters
    ----------
    args : argparse.Namespace
        What one of the parsers of `add_parsers` returned.

    Returns
    -------
    int
        0; 1 where the command found something wrong; 2 after an error, which is on standard error.

    Raises
    ------
    MissingDependencyError
        If Spark, or its spark-submit, is not there.
    JarNotFoundError
        If the package has no jar.
    SparkVersionError
        If no bundled jar is for the line of Spark.
    """
    done = subprocess.run(
        _submit(args, env=os.environ),
        env=_environment(os.environ, is_verbose=args.verbose),
        check=False,
    )
    return _EXIT_CODES.get(done.returncode, 2)


def _parent() -> argparse.ArgumentParser:
    """Return the parser of what all commands have: options with their meaning in spark-submit."""
    parser = argparse.ArgumentParser(add_help=False)
    group = parser.add_argument_group("options of spark-submit")
    for option, (metavar, text) in _SUBMIT_OPTIONS.items():
        action = "append" if option == "--conf" else "store"
        group.add_argument(option, metavar=metavar, action=action, help=text)
    parser.add_argument(
        "--verbose", action="store_true", help="show Spark's logs, and where an error came from"
    )
    return parser


def _submit(args: argparse.Namespace, *, env: Mapping[str, str]) -> list[str]:
    """Return the words that start spark-submit."""
    submit = spark_home(env=env) / "bin" / "spark-submit"
    if not submit.is_file():
        problem = f"{submit} does not exist"
        raise MissingDependencyError(
            problem,
            reason="the home of Spark has no spark-submit",
            remedy="correct SPARK_HOME, or install pyspark: pip install 'statemark[pyspark]'",
        )
    words = [str(submit), "--class", _MAIN]
    for option in _SUBMIT_OPTIONS:
        value = getattr(args, option.removeprefix("--").replace("-", "_"))
        for one in value if isinstance(value, list) else [value]:
            words += [] if one is None else [option, one]
    words.append(str(jar_path()))
    command = next(c for c in _COMMANDS if c.name == args.command)
    words += ["--verbose"] if args.verbose else []
    checkpoint = [args.checkpoint] if command.has_checkpoint else []
    return [*words, command.name, *checkpoint, *command.words(args)]


def _environment(env: Mapping[str, str], *, is_verbose: bool) -> dict[str, str]:
    """Return the environment of spark-submit, which starts logging before it has our jar."""
    if is_verbose:
        return dict(env)
    options = f"{env.get('SPARK_SUBMIT_OPTS', '')} -Dlog4j2.configurationFile={_QUIET.as_uri()}"
    return {**env, "SPARK_SUBMIT_OPTS": options.strip()}


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


def _switch_words(args: argparse.Namespace) -> list[str]:
    force = ["--force"] if args.force else []
    return ["--to", args.to, "--observe", str(args.observe), *force]


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


def _repartition_words(args: argparse.Namespace) -> list[str]:
    what = ["--rollback"] if args.rollback else ["--partitions", str(args.partitions)]
    skip = ["--skip-uncommitted"] if args.skip_uncommitted else []
    return [*what, "--observe", str(args.observe), *skip]


# ---- inspect, verify


def _json_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="one JSON object instead of text")


def _json_words(args: argparse.Namespace) -> list[str]:
    return ["--json"] if args.json else []


def _verify_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--deep",
        action="store_true",
        help="also load every version from the snapshot before it, and compare the rows",
    )
    _json_argument(parser)


def _verify_words(args: argparse.Namespace) -> list[str]:
    return [*(["--deep"] if args.deep else []), *_json_words(args)]


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


def _local_words(args: argparse.Namespace) -> list[str]:
    words = ["--prune"] if args.prune else []
    for option, _, _ in _LOCAL_OPTIONS:
        value = getattr(args, option.removeprefix("--").replace("-", "_"))
        words += [] if value is None else [option, value]
    return [*words, *_json_words(args)]


_COMMANDS: Sequence[_Command] = (
    _Command(
        "switch",
        "move a stopped query's checkpoint to another state store provider",
        "Move the checkpoint of a stopped query between Statemark and Spark's RocksDB provider, or"
        " from Spark's HDFS-backed provider to one of them. In place; what it changes is kept in"
        " CHECKPOINT/_statemark.",
        _switch_arguments,
        _switch_words,
    ),
    _Command(
        "repartition",
        "move a stopped query's state onto another number of partitions",
        "Move the state of every stateful operator of a stopped query onto another number of"
        " partitions. After an interruption run the same command again, or take it back with"
        " --rollback; until then the query refuses to start.",
        _repartition_arguments,
        _repartition_words,
    ),
    _Command(
        "inspect",
        "show what a checkpoint holds",
        "Show operators, stores, versions, snapshots, rows and sizes of a checkpoint, and the"
        " provider that it pins. Reads logs, listings and the newest snapshots' metadata; writes"
        " nothing.",
        _json_argument,
        _json_words,
    ),
    _Command(
        "verify",
        "check that every committed batch of a checkpoint can be restored",
        "Read every state file of a checkpoint and check it: whole, as its checksums say, leading"
        " to every retained batch, and no file nobody's. Writes nothing; the query may run"
        " meanwhile. Exits with 1 where something is wrong.",
        _verify_arguments,
        _verify_words,
    ),
    _Command(
        "local",
        "show, and prune, what lies in the local directory of this machine",
        "Show the stores that queries keep on this machine's disk: query, operator-partition-store,"
        " version on disk, checkpoint id, size, last use, and whether some process uses it. With"
        " --prune delete those that no process uses: the checkpoint has all that they hold.",
        _local_arguments,
        _local_words,
        has_checkpoint=False,
    ),
)

NAMES = frozenset(command.name for command in _COMMANDS)
