"""The command `statemark`."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Mapping, Sequence

from statemark import (
    demo,
    diagnosis,
    doctor_elsewhere,
    json_output,
    layers,
    offline,
    properties,
    settings,
)
from statemark._version import __version__
from statemark.command import json_argument
from statemark.errors import MissingDependencyError, SettingsError, StatemarkError
from statemark.jars import URI, jar_path, refuse_unreadable
from statemark.session import conf
from statemark.usage import Parser

# As a shell has it of a command that a signal ended; Windows has no such signal.
_NOBODY_READS = 128 + 13
_INTERRUPTED = 128 + 2
# What a shell does to an unquoted word: it splits at blanks and expands patterns.
_PATTERN = re.compile(r"[*?\[{]")
_UNSAFE = re.compile(r"[\s*?\[\]]")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command.

    Parameters
    ----------
    argv : sequence of str, optional
        Arguments without the program's name; by default those of the process.

    Returns
    -------
    int
        0; 1 where a command found something wrong; 2 after an error, which is then
        on standard error; 130 after Ctrl-C; 141 where who reads standard output has gone, as
        `head` does.

    Examples
    --------
    >>> from statemark.cli import main
    >>> main(["conf", "--local-dir", "state"])
    2
    """
    try:
        try:
            return _run(argv)
        finally:
            sys.stdout.flush()
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BrokenPipeError:
        # Python flushes once more at its end, and would complain of it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _NOBODY_READS


def _run(argv: Sequence[str] | None) -> int:
    args = make_parser().parse_args(argv)
    try:
        if args.command == "doctor" and args.kafka is None:
            return _doctor(args)
        if args.command in offline.NAMES:
            return offline.run(args)
        if args.command == "demo":
            return demo.run(keys=args.keys)
        text = _conf(args) if args.command == "conf" else _jar(args)
    except StatemarkError as error:
        if getattr(args, "json", False):
            print(json_output.of_error(error))
        print(f"statemark: {error}", file=sys.stderr)
        return 2
    print(text)
    return 0


def make_parser() -> Parser:
    """Return the parser of the command, of which completions of shells can be made.

    Returns
    -------
    Parser
        With all commands.

    Notes
    -----
    Source: ``shtab --shell=bash statemark.cli.make_parser`` (PyPI: shtab).
    """
    parser = Parser(
        prog="statemark",
        description="Transactional state for Spark Structured Streaming.",
        examples=(
            ("conf --local-dir /var/lib/statemark", "flags for spark-submit"),
            ("inspect /data/checkpoint", "what a checkpoint holds"),
        ),
    )
    parser.add_argument("--version", action="version", version=f"statemark {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)

    spark_version = Parser(add_help=False)
    spark_version.add_argument(
        "--spark-version", metavar="V", help="line of Spark, such as 4.2 (default: the one found)"
    )

    sub = commands.add_parser(
        "conf",
        parents=[spark_version],
        help="print the flags for spark-submit",
        description="Print flags for: spark-submit $(statemark conf) job.py. Jars that"
        " spark-defaults.conf names are kept.",
        examples=(
            ("conf", "as in: spark-submit $(statemark conf) job.py"),
            ("conf --format spark-defaults > statemark.conf", "a file for --properties-file"),
        ),
    )
    sub.add_argument("--local-dir", metavar="D", help="where stores keep files on executors")
    sub.add_argument("--isolation-level", metavar="L", help="READ_COMMITTED or READ_UNCOMMITTED")
    sub.add_argument("--max-uncommitted-bytes", metavar="B", help="a size (64m), -1, or auto")
    sub.add_argument("--jar", metavar="PATH", help="the plugin's jar (default: the bundled one)")
    sub.add_argument(
        "--jars",
        metavar="LIST",
        default="",
        help="your own jars, comma-separated; spark-submit heeds only its last --jars, so"
        " name them here instead",
    )
    sub.add_argument(
        "--format",
        choices=("spark-submit", "spark-defaults"),
        default="spark-submit",
        help="flags on one line, or lines for spark-defaults.conf (default: spark-submit)",
    )
    json_argument(sub)

    sub = commands.add_parser(
        "demo",
        help="compare both providers on this machine, in about a minute",
        description="Run one query on Spark's RocksDB provider and on Statemark, fail a task on"
        " purpose, restart both, and end in a verdict. Needs pyspark and nothing else; what it"
        " writes is in a temporary folder, and deleted. Exits with 1 where rows differ.",
        examples=(
            ("demo", "a verdict of four lines"),
            ("demo --keys 3000000", "more state, and so more to reload"),
        ),
    )
    sub.add_argument(
        "--keys",
        metavar="N",
        type=int,
        default=demo.KEYS,
        help=f"keys of the state (default: {demo.KEYS})",
    )

    offline.add_parsers(commands)
    sub = commands.add_parser(
        "jar",
        parents=[spark_version],
        help="print the path of the bundled jar",
        description="Print the path of the plugin's jar for the Spark that is found.",
        examples=(
            ("jar", "as in: spark-submit --jars $(statemark jar) job.py"),
            ("jar --spark-version 4.2", "for another line of Spark"),
        ),
    )
    json_argument(sub)
    return parser


def _doctor(args: argparse.Namespace) -> int:
    given = offline.given_to(args)
    found = diagnosis.examine(
        getattr(args, "checkpoint", None),
        conf=doctor_elsewhere.settings_of(given),
        inspect=lambda location: doctor_elsewhere.inspected(
            location, given=given, is_verbose=args.verbose
        ),
    )
    print(found.to_json() if args.json else found)
    return 0 if found.ok else 1


def _jar(args: argparse.Namespace) -> str:
    path = str(jar_path(spark_version=args.spark_version))
    return json_output.of({"jar": path, "version": __version__}) if args.json else path


def _conf(args: argparse.Namespace) -> str:
    # URIs, and patterns of names, are Spark's to look up.
    for jar in filter(None, map(str.strip, args.jars.split(","))):
        if not (URI.match(jar) or _PATTERN.search(jar)):
            refuse_unreadable(jar, remedy="correct --jars")
    wanted = conf(
        isolation_level=args.isolation_level,
        max_uncommitted_bytes=args.max_uncommitted_bytes,
        local_dir=args.local_dir,
        jar=args.jar,
        spark_version=args.spark_version,
    )
    defaults = _defaults()
    wanted[layers.JARS] = layers.merge(
        args.jars, defaults.get(layers.JARS, ""), wanted[layers.JARS]
    )
    wanted[settings.PLUGINS_KEY] = layers.with_plugin(defaults.get(settings.PLUGINS_KEY, ""))
    if args.json:
        return json_output.of({"settings": wanted})
    if args.format == "spark-defaults":
        return properties.write(wanted).rstrip("\n")
    for key, value in wanted.items():
        unsafe = _UNSAFE.search(value)
        if unsafe:
            problem = f"{key} = {value!r} cannot be printed as flags"
            raise SettingsError(
                problem,
                reason=f"the shell would split or expand $(statemark conf) at {unsafe[0]!r}",
                remedy="write a file with `statemark conf --format spark-defaults` and pass it"
                " to spark-submit with --properties-file and --load-spark-defaults",
            )
    flags = ["--jars", wanted.pop(layers.JARS)]
    for key, value in wanted.items():
        flags += ["--conf", f"{key}={value}"]
    return " ".join(flags)


def _defaults() -> Mapping[str, str]:
    """Return the settings of spark-defaults.conf, whose jars and plugins the flags would hide."""
    try:
        return layers.defaults(env=os.environ)
    except MissingDependencyError:
        return {}  # no Spark here, and so no spark-defaults.conf
