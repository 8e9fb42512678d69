"""What `statemark doctor` learns from an offline command, and the settings of that command."""

from __future__ import annotations

import argparse
import os
import subprocess

from statemark import layers
from statemark.checkpoint_facts import Checkpoint, from_inspection
from statemark.errors import MissingDependencyError, SettingsError
from statemark.jars import spark_home
from statemark.layers import SubmitArgs
from statemark.offline import (
    SUBMIT_OPTIONS,
    ending_with_us,
    environment,
    given_to,
    refuse_missing,
    submit_words,
)


def inspected(location: str, *, given: SubmitArgs, is_verbose: bool = False) -> Checkpoint:
    """Return what `statemark inspect` says of a checkpoint.

    Parameters
    ----------
    location : str
        The checkpoint.
    given : SubmitArgs
        Options for spark-submit; those that an offline command does not take are left out.
    is_verbose : bool, optional
        Whether Spark's logs are shown.

    Returns
    -------
    Checkpoint
        What it says.

    Raises
    ------
    SettingsError
        If nothing is at the location, or `inspect` has failed, which is on standard error.
    MissingDependencyError, JarNotFoundError, SparkVersionError
        As for `run`.
    """
    args = argparse.Namespace(command="inspect", checkpoint=location, json=True, verbose=is_verbose)
    home = spark_home(env=os.environ)
    known = SubmitArgs(tuple(one for one in given.options if one[0] in SUBMIT_OPTIONS), ())
    refuse_missing(args, home, known)
    done = subprocess.run(
        submit_words(args, home, known, {}),
        env=environment(os.environ, is_verbose=is_verbose),
        stdout=subprocess.PIPE,
        check=False,
        preexec_fn=ending_with_us(),
    )
    if done.returncode != 0:
        problem = f"{location} could not be inspected"
        reason = "`statemark inspect` has failed, and standard error says why"
        raise SettingsError(problem, reason=reason, remedy="correct what it says")
    return from_inspection(done.stdout.decode().strip().splitlines()[-1])


def settings_of(args: argparse.Namespace) -> dict[str, str]:
    """Return the settings of Spark that an offline command would run with.

    Parameters
    ----------
    args : argparse.Namespace
        What one of the parsers of `add_parsers` returned.

    Returns
    -------
    dict of str to str
        Those of its options, and of the files that they name or leave to Spark.
    """
    given = given_to(args)
    try:
        found = layers.defaults(env=os.environ, args=given)
    except MissingDependencyError:
        found = {}  # no Spark here, and so no spark-defaults.conf
    named = {"spark.master": given.value("--master"), "spark.jars": given.jars}
    named["spark.jars.packages"] = given.value("--packages")
    return {**found, **given.conf, **{key: value for key, value in named.items() if value}}
