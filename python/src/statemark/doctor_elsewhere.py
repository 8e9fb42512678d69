"""What `statemark doctor` learns from an offline command, and the settings of that command."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from statemark import layers, offline_calls
from statemark.checkpoint_facts import Checkpoint, from_inspection
from statemark.errors import MissingDependencyError, SettingsError, StatemarkError

if TYPE_CHECKING:
    from statemark.layers import SubmitArgs


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
        If nothing is at the location, or `inspect` has failed, with what it says.
    MissingDependencyError, JarNotFoundError, SparkVersionError
        As for `offline.run`.
    """
    args = argparse.Namespace(command="inspect", checkpoint=location, json=True, verbose=is_verbose)
    try:
        _, values = offline_calls.answer(args, given=given, is_verbose=is_verbose)
    except StatemarkError as error:
        if type(error) is not StatemarkError:
            raise
        raise SettingsError(error.problem, reason=error.reason, remedy=error.remedy) from error
    return from_inspection(values)


def settings_of(given: SubmitArgs) -> dict[str, str]:
    """Return the settings of Spark that spark-submit would start with.

    Parameters
    ----------
    given : SubmitArgs
        Its options.

    Returns
    -------
    dict of str to str
        Those of its options, and of the files that they name or leave to Spark.
    """
    try:
        found = layers.defaults(env=os.environ, args=given)
    except MissingDependencyError:
        found = {}  # no Spark here, and so no spark-defaults.conf
    named = {"spark.master": given.value("--master"), "spark.jars": given.jars}
    named["spark.jars.packages"] = given.value("--packages")
    return {**found, **given.conf, **{key: value for key, value in named.items() if value}}
