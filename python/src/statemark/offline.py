"""Commands on what a query keeps: a JVM that spark-submit starts.

Each is one entry of ``commands.COMMANDS``, and its work is in the JVM packages
``statemark.spark.offline`` and ``statemark.kafka.sink.commands``.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from statemark import broker_arguments, children, java, json_output, kafka_library, layers, places
from statemark.commands import COMMANDS
from statemark.errors import MissingDependencyError, SettingsError, StatemarkError
from statemark.jars import jar_path, pip_install, spark_home
from statemark.layers import SubmitArgs
from statemark.usage import Parser

if TYPE_CHECKING:
    from statemark.command import Command

    Subparsers = argparse._SubParsersAction[Parser]

_MAIN = "statemark.spark.offline.Main"
_QUIET = Path(__file__).parent / "log4j2-quiet.properties"
# Exit codes of the JVM, also of one that was told to end. Any other is an error too: spark-submit
# has its own.
# Nobody reading what it prints is not one: SIGPIPE's.
_EXIT_CODES = {0: 0, 10: 1, 128 + signal.SIGINT: 130, 128 + 13: 141, 128 + signal.SIGTERM: 143}
_NOT_STARTED = 1
_FAILED = 2

NAMES = frozenset(command.name for command in COMMANDS)
_ON_CHECKPOINT = frozenset(command.name for command in COMMANDS if command.has_checkpoint)
_ASK_KAFKA = frozenset(command.name for command in COMMANDS if command.asks_kafka)
# What those need of Spark is its class path; a query of theirs, all cores.
_WITHOUT_CLUSTER = ("--master", "local[*]", "--deploy-mode", "client")

SUBMIT_OPTIONS = {
    "--master": ("URL", "where Spark runs (default: that of spark-defaults.conf, else local[*])"),
    "--conf": ("KEY=VALUE", "a setting of Spark; may be given more than once"),
    "--properties-file": ("FILE", "settings of Spark instead of spark-defaults.conf"),
    "--packages": ("LIST", "Maven coordinates, such as those of the file system's classes"),
    "--repositories": ("LIST", "where to look for the packages besides Maven Central"),
    "--jars": ("LIST", "jars for driver and executors"),
}


def add_parsers(commands: Subparsers) -> None:
    """Add the parsers of all offline commands.

    Parameters
    ----------
    commands : argparse subparsers
        Those of the command `statemark`.
    """
    groups: dict[str, Subparsers] = {}
    for command in COMMANDS:
        group, _, name = command.name.rpartition(" ")
        if group and group not in groups:
            groups[group] = _group(commands, group)
        parser = groups.get(group, commands).add_parser(
            name,
            parents=[_parent(command)],
            help=command.summary,
            description=command.description,
            examples=command.examples,
        )
        parser.set_defaults(command=command.name)
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
    SettingsError
        If the checkpoint, or the local directory, is certain not to be there, or an argument about
        brokers is wrong whatever they say.
    MissingDependencyError
        If Spark, or its spark-submit, is not there.
    JarNotFoundError
        If the package has no jar.
    SparkVersionError
        If no bundled jar is for the line of Spark.
    """
    home = spark_home(env=os.environ)
    given = given_to(args)
    refuse_missing(args, home, given)
    added = _library(args, home, given) if args.command in _ASK_KAFKA else {}
    words = submit_words(args, home, given, added)

    def start(output: IO[bytes] | None) -> int:
        process = subprocess.Popen(
            words,
            stdout=output,
            env=environment(os.environ, is_verbose=args.verbose),
            preexec_fn=children.ending_with_us(),
        )
        return children.awaited(process)

    code, is_told = json_output.only(start) if args.json else (start(None), False)
    if "--packages" in added and code == _NOT_STARTED:
        raise kafka_library.not_fetched(added["--packages"])
    told = _EXIT_CODES.get(code, _FAILED)
    # A command that fails says why, and ends with the code for it. Anything else may say nothing.
    if told == _FAILED and not is_told and (args.json or code != _FAILED):
        raise failed(args.command, code)
    return told


def failed(command: str, code: int) -> StatemarkError:
    """Return the error of a process that has failed and not said so in three lines."""
    problem = f"`statemark {command}` has failed"
    reason = f"its process ended with exit code {code}, and standard error says why"
    return StatemarkError(problem, reason=reason, remedy="correct what it says")


def is_failure(code: int) -> bool:
    """Tell whether the process of a command, which ended with `code`, has failed."""
    return _EXIT_CODES.get(code, _FAILED) not in (0, 1)


def _library(args: argparse.Namespace, home: Path, given: SubmitArgs) -> dict[str, str]:
    """Return the options that bring Kafka's client library; say what has to be fetched for it."""
    is_here = places.has_driver(given=given, env=os.environ)
    broker_arguments.refuse_unfit(args, is_driver_here=is_here)
    is_continuous = getattr(args, "continuous", False)
    added = dict(kafka_library.options(given, home=home, env=os.environ, connector=is_continuous))
    line = kafka_library.fetching(added["--packages"]) if "--packages" in added else None
    if line:
        sys.stderr.write(f"{line}\n")
    return added


def refuse_missing(args: argparse.Namespace, home: Path, given: SubmitArgs) -> None:
    """Say at once what the command would say after the seconds in which Spark starts."""
    conf = layers.conf_dir(env=os.environ, home=home)
    if not (conf / "spark-env.sh").is_file():  # which may set JAVA_HOME
        java.refuse_unfit(os.environ)
    checkpoint = args.checkpoint if args.command in _ON_CHECKPOINT else None
    if checkpoint is not None and not checkpoint.strip():
        raise places.no_location()
    directory = getattr(args, "local_dir", None)
    for location, is_local in ((checkpoint, False), (directory, True)):
        path = location and places.local_path(
            location, home=home, given=given, env=os.environ, is_local=is_local
        )
        if path and places.is_missing(path):
            problem = f"{location} does not exist"
            raise SettingsError(
                problem, reason="nothing is at this path", remedy="correct the location"
            )
        if path and not is_local and places.is_missing(path / "metadata"):
            raise places.no_checkpoint(location, "it has no file 'metadata'")


def _group(commands: Subparsers, name: str) -> Subparsers:
    """Add a command that only has subcommands."""
    parser = commands.add_parser(name, help=f"commands on a {name}: {name} --help lists them")
    return parser.add_subparsers(metavar="COMMAND", required=True)


def _parent(command: Command) -> Parser:
    """Return the parser of a command's common options, with their meaning in spark-submit."""
    parser = Parser(add_help=False)
    group = parser.add_argument_group("options of spark-submit")
    for option, (metavar, text) in SUBMIT_OPTIONS.items():
        if command.asks_kafka and not command.needs_session and option == "--master":
            continue
        how: dict[str, Any] = {"action": "append", "type": _setting} if option == "--conf" else {}
        group.add_argument(option, metavar=metavar, help=text, **how)
    parser.add_argument(
        "--verbose", action="store_true", help="show Spark's logs, and where an error came from"
    )
    return parser


def _setting(text: str) -> str:
    """Parse a setting, so that a wrong one is refused before Spark starts."""
    if not re.match(r"[^=\s]+=", text):
        problem = f"{text!r} is no KEY=VALUE"
        raise argparse.ArgumentTypeError(problem)
    if not text.startswith("spark."):  # which spark-submit leaves out, with a line in its log
        problem = (
            f"{text.partition('=')[0]} is no setting of Spark's, whose names begin with spark."
        )
        raise argparse.ArgumentTypeError(problem)
    return text


def given_to(args: argparse.Namespace) -> SubmitArgs:
    """Return the options for spark-submit that were given."""
    options: list[tuple[str, str | None]] = []
    for option in SUBMIT_OPTIONS:
        value = getattr(args, _name(option), None)
        values = value if isinstance(value, list) else [value]
        options += [(option, one) for one in values if one is not None]
    return SubmitArgs(tuple(options), ())


def submit_words(
    args: argparse.Namespace, home: Path, given: SubmitArgs, added: Mapping[str, str]
) -> list[str]:
    """Return the words that start spark-submit."""
    submit = home / "bin" / "spark-submit"
    if not os.access(submit, os.X_OK):
        problem = f"{submit} cannot be run"
        raise MissingDependencyError(
            problem,
            reason="this user may not run it"
            if submit.is_file()
            else "the home of Spark has no spark-submit",
            remedy=f"correct SPARK_HOME, or install pyspark: {pip_install()}",
        )
    words = [str(submit), "--class", _MAIN]
    has_master = bool(given.value("--master"))
    words += _WITHOUT_CLUSTER if args.command in _ASK_KAFKA and not has_master else ()
    own = [(option, value) for option, value in given.options if option not in added]
    for option, value in [*own, *added.items()]:
        words += [option, str(value)]
    return [*words, str(jar_path()), _request(args)]


def _request(args: argparse.Namespace) -> str:
    """Return the command and all of its arguments as the JSON object that the JVM reads.

    It is flat: where a cluster starts the driver, YARN replaces what stands in double braces.
    """
    given = {name: value for name, value in vars(args).items() if name not in _submit_names()}
    return json.dumps({_camel(name): value for name, value in given.items()})


def _submit_names() -> set[str]:
    return {_name(option) for option in SUBMIT_OPTIONS}


def _name(option: str) -> str:
    return option.removeprefix("--").replace("-", "_")


def _camel(name: str) -> str:
    return re.sub("_(.)", lambda letter: letter[1].upper(), name)


def environment(env: Mapping[str, str], *, is_verbose: bool) -> dict[str, str]:
    """Return the environment of spark-submit, which starts logging before it has our jar."""
    if is_verbose:
        return dict(env)
    options = f"{env.get('SPARK_SUBMIT_OPTS', '')} -Dlog4j2.configurationFile={_QUIET.as_uri()}"
    return {**env, "SPARK_SUBMIT_OPTS": options.strip()}
