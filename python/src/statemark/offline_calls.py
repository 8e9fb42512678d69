"""Offline commands that Python code calls: what they would print as JSON comes back as a value."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from statemark import children, json_output, layers, offline, properties
from statemark.errors import StatemarkError
from statemark.jars import spark_home
from statemark.layers import SubmitArgs

# What another application needs of a session's settings to reach the same file systems.
_NEEDED = ("spark.hadoop.", "spark.jars")
# Options whose settings are in the file, and those that would count more than a setting of it.
_IN_FILE = {"--properties-file", "--extra-properties-file", "--load-spark-defaults", "--conf", "-c"}
_SETTINGS = {
    "--master": "spark.master",
    "--jars": "spark.jars",
    "--packages": "spark.jars.packages",
    "--repositories": "spark.jars.repositories",
}


@contextmanager
def settings_file(of_session: Mapping[str, str], given: Mapping[str, str]) -> Iterator[SubmitArgs]:
    """Hand a session's settings to a command, in a file that its user alone can read.

    Everybody on the machine can see a command line, and settings have secrets of file systems.

    Parameters
    ----------
    of_session : Mapping
        The session's settings. Those of file systems and jars count; all others are
        spark-defaults.conf's.
    given : Mapping
        More settings, all of which count, before those.

    Yields
    ------
    SubmitArgs
        Options for spark-submit, while the file is there.
    """
    named = layers.submit_args(env=os.environ)
    needed = {key: value for key, value in of_session.items() if key.startswith(_NEEDED)}
    needed |= given
    found = {**layers.defaults(env=os.environ, args=named), **named.conf, **needed}
    others = tuple(
        (option, value)
        for option, value in named.options
        if option not in _IN_FILE and _SETTINGS.get(option) not in needed
    )
    with tempfile.NamedTemporaryFile("w", suffix=".conf", encoding="utf-8") as file:
        file.write(properties.write(found))
        file.flush()
        yield SubmitArgs((("--properties-file", file.name), *others), ())


def answer(
    args: argparse.Namespace, *, given: SubmitArgs, is_verbose: bool = False
) -> tuple[bool, dict[str, Any]]:
    """Run a command, and return its answer. Its progress goes to `sys.stderr`, line by line.

    Parameters
    ----------
    args : argparse.Namespace
        What one of the parsers of `offline.add_parsers` returned, with ``--json``.
    given : SubmitArgs
        Options for spark-submit; those that an offline command does not take are left out.
    is_verbose : bool, optional
        Whether Spark's logs are shown.

    Returns
    -------
    tuple of bool and dict
        Whether all is as it should be, and the JSON object.

    Raises
    ------
    StatemarkError
        If the command has failed, with what it says.
    SettingsError, MissingDependencyError, JarNotFoundError, SparkVersionError
        As `offline.run`.
    """
    home = spark_home(env=os.environ)
    known = SubmitArgs(tuple(one for one in given.options if one[0] in offline.SUBMIT_OPTIONS), ())
    offline.refuse_missing(args, home, known)
    words = offline.submit_words(args, home, known, {})
    sys.stderr.write(f"statemark {args.command}: Spark starts, which takes some seconds\n")
    with tempfile.TemporaryFile() as output:
        with subprocess.Popen(
            words,
            env=offline.environment(os.environ, is_verbose=is_verbose),
            stdout=output,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
            preexec_fn=children.ending_with_us(),
        ) as process:
            told = _shown(process)
        output.seek(0)
        found = json_output.found(output.read().decode(errors="replace").splitlines())
    values = json.loads(found) if found else {}
    if "error" in values:
        unknown = {"reason": "standard error says why", "remedy": "correct what it says"}
        raise StatemarkError(**{**unknown, **values["error"]})
    sys.stderr.writelines(told)
    if offline.is_failure(process.returncode) or not values:
        raise offline.failed(args.command, process.returncode)
    return process.returncode == 0, values


def _shown(process: subprocess.Popen[str]) -> list[str]:
    """Show what a command says, until it has ended; return the lines in which it tells an error.

    They are an exception's text, where the command has an object of the error as well.
    """
    told: list[str] = []
    try:
        for line in process.stderr or ():
            begins = line.startswith("statemark: ")
            if begins or (told and line.startswith(("  reason: ", "  remedy: "))):
                told.append(line)
            else:
                sys.stderr.write(line)
    except BaseException:
        # The command takes back what it has begun, and may say so. Whoever insists does not wait.
        process.terminate()
        try:
            process.communicate()
        except BaseException:
            process.kill()
            raise
        raise
    return told
