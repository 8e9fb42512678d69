"""Commands on what a query keeps: a JVM that spark-submit starts.

Each is one entry of ``commands.COMMANDS``, and its work is in the JVM packages
``statemark.spark.offline`` and ``statemark.kafka.sink.commands``.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import math
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING

from statemark import json_output, kafka_library, places
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
_PR_SET_PDEATHSIG = 1

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
        If the checkpoint, or the local directory, is certain not to be there.
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
    added: dict[str, str] = {}
    if args.command in _ASK_KAFKA:
        added = dict(
            kafka_library.options(
                given,
                home=home,
                env=os.environ,
                connector=getattr(args, "continuous", False),
            )
        )
    words = submit_words(args, home, given, added)

    def start(output: IO[bytes] | None) -> int:
        process = subprocess.Popen(
            words,
            stdout=output,
            env=environment(os.environ, is_verbose=args.verbose),
            preexec_fn=ending_with_us(),
        )
        return _awaited(process)

    code, is_told = json_output.only(start) if args.json else (start(None), True)
    if "--packages" in added and code == _NOT_STARTED:
        raise kafka_library.not_fetched(added["--packages"])
    told = _EXIT_CODES.get(code, 2)
    if told == _FAILED and not is_told:
        problem = f"`statemark {args.command}` has failed"
        reason = f"its process ended with exit code {code}, and standard error says why"
        error = StatemarkError(problem, reason=reason, remedy="correct what it says")
        sys.stdout.write(f"{json_output.of_error(error)}\n")
    return told


def refuse_missing(args: argparse.Namespace, home: Path, given: SubmitArgs) -> None:
    """Say at once what the command would say after the seconds in which Spark starts."""
    checkpoint = args.checkpoint if args.command in _ON_CHECKPOINT else None
    directory = getattr(args, "local_dir", None)
    for location, is_local in ((checkpoint, False), (directory, True)):
        if location and places.is_missing(
            location, home=home, given=given, env=os.environ, is_local=is_local
        ):
            problem = f"{location} does not exist"
            raise SettingsError(
                problem, reason="nothing is at this path", remedy="correct the location"
            )


def ending_with_us() -> Callable[[], None] | None:
    """
    Return what tells the kernel to end the command in its own way where this process is killed.

    Else a command that nobody sees would go on writing. Only Linux has it.
    """
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None).prctl
    return lambda: prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _awaited(process: subprocess.Popen[bytes]) -> int:
    """Wait for a command, which ends in its own way when it is told to; return its exit code."""
    is_main = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGTERM)
    if is_main:
        signal.signal(signal.SIGTERM, lambda *_: process.terminate())
    try:
        return process.wait()
    except KeyboardInterrupt:
        # A terminal has told the command too. Whoever insists does not want to wait.
        with contextlib.suppress(KeyboardInterrupt):
            return process.wait()
        raise
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        if is_main:
            signal.signal(signal.SIGTERM, before)


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
        action = "append" if option == "--conf" else "store"
        group.add_argument(option, metavar=metavar, action=action, help=text)
    parser.add_argument(
        "--verbose", action="store_true", help="show Spark's logs, and where an error came from"
    )
    return parser


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
    if not submit.is_file():
        problem = f"{submit} does not exist"
        raise MissingDependencyError(
            problem,
            reason="the home of Spark has no spark-submit",
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
    return json.dumps({_camel(name): _value(value) for name, value in given.items()})


def _submit_names() -> set[str]:
    return {_name(option) for option in SUBMIT_OPTIONS}


def _name(option: str) -> str:
    return option.removeprefix("--").replace("-", "_")


def _camel(name: str) -> str:
    return re.sub("_(.)", lambda letter: letter[1].upper(), name)


def _value(value: object) -> object:
    """Return a value as JSON has it: not an infinite number, which the command will refuse."""
    is_number = not isinstance(value, float) or math.isfinite(value)
    return value if is_number else str(value)


def environment(env: Mapping[str, str], *, is_verbose: bool) -> dict[str, str]:
    """Return the environment of spark-submit, which starts logging before it has our jar."""
    if is_verbose:
        return dict(env)
    options = f"{env.get('SPARK_SUBMIT_OPTS', '')} -Dlog4j2.configurationFile={_QUIET.as_uri()}"
    return {**env, "SPARK_SUBMIT_OPTS": options.strip()}
