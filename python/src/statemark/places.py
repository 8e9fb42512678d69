"""Paths that an offline command is given and that are not there: no virtual machine has to say so.

Only what is certain is said: any file system can be the one of a path without a scheme, as Hadoop's
settings have it, and a driver may run on another machine.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from statemark import layers
from statemark.errors import SettingsError

if TYPE_CHECKING:
    from statemark.layers import SubmitArgs

# As Hadoop's paths have it, whose parts are not escaped.
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_URI = re.compile(_SCHEME.pattern + r"(?://([^/]*))?(/.*)")
_OWN_HOST = re.compile(r"//(?:localhost)?(?=/)")
#: Settings of the file system of a path without a scheme; the first counts.
DEFAULT_FS = ("spark.hadoop.fs.defaultFS", "spark.hadoop.fs.default.name")
_LOCAL_FS = "spark.hadoop.fs.file.impl"
_DEPLOY_MODE = "spark.submit.deployMode"
# Hadoop finds its file of settings on the class path: these add to it.
_CLASS_PATH = ("spark.driver.extraClassPath", layers.JARS, "spark.jars.packages")
_CLASS_PATH_OPTIONS = ("--driver-class-path", "--jars", "--packages")
_CLASS_PATH_ENV = ("HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_DIST_CLASSPATH")
# The second is a script that spark-submit runs, and that can set any of those variables.
_FILES = ("core-site.xml", "spark-env.sh")
_NAME_ITS_OWN = "name the directory that the query has as its checkpointLocation"


def no_location() -> SettingsError:
    """Return the error of a checkpoint location that is empty."""
    problem = "the checkpoint location is empty"
    return SettingsError(problem, reason="a variable may not be set", remedy=_NAME_ITS_OWN)


def no_checkpoint(location: object, reason: str) -> SettingsError:
    """Return the error of a location that is not the checkpoint of a query."""
    problem = f"{location} is not the checkpoint of a query"
    return SettingsError(problem, reason=reason, remedy=_NAME_ITS_OWN)


def is_same(location: str, other: str, *, file_system: str) -> bool:
    """Tell whether two locations are one directory, as far as their texts say.

    Parameters
    ----------
    location, other : str
        Paths, or URIs.
    file_system : str
        The URI of the file system of paths without a scheme.

    Returns
    -------
    bool
        False where a text does not say it, as that of a relative path does not.
    """
    here, there = (_absolute(text, file_system) for text in (location, other))
    return here is not None and here == there


def _absolute(location: str, file_system: str) -> tuple[str, str, str] | None:
    """Return scheme, host without its port, and path."""
    root = file_system.rstrip("/") if location.startswith("/") else ""
    found = _URI.fullmatch(root + location)
    if found is None:
        return None
    scheme, host, path = found.groups()
    return scheme.lower(), (host or "").partition(":")[0].lower(), posixpath.normpath(path)


def local_path(
    location: str, *, home: Path, given: SubmitArgs, env: Mapping[str, str], is_local: bool = False
) -> Path | None:
    """Return the path of a location that is certain to be one of this machine.

    Parameters
    ----------
    location : str
        A path, or a URI.
    home : pathlib.Path
        The home of Spark.
    given : SubmitArgs
        The options for spark-submit.
    env : Mapping
        Environment variables.
    is_local : bool, optional
        Whether a path without a scheme is one of this machine, whatever Hadoop's settings say.

    Returns
    -------
    pathlib.Path or None
        The path, whatever is there; None where only Spark can tell.
    """
    settings = _settings(given, env)
    if not _has_driver(settings, given=given, env=env) or _LOCAL_FS in settings:
        return None
    scheme = _SCHEME.match(location)
    if scheme is None:
        if not is_local and _may_have_other_default(settings, home=home, given=given, env=env):
            return None
        return Path(location)
    if scheme[1] != "file":
        return None
    path = _OWN_HOST.sub("", location[scheme.end() :], count=1)
    return Path(path) if path.startswith("/") and not path.startswith("//") else None


def is_missing(path: Path) -> bool:
    """Tell whether nothing is at a path, for certain.

    Parameters
    ----------
    path : pathlib.Path
        A path of this machine.

    Returns
    -------
    bool
        False where something is there, and where this user may not look.
    """
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except (OSError, ValueError):
        return False
    return False


def has_driver(*, given: SubmitArgs, env: Mapping[str, str]) -> bool:
    """Tell whether a command's driver runs on this machine, and not on one of a cluster.

    Parameters
    ----------
    given : SubmitArgs
        The options for spark-submit.
    env : Mapping
        Environment variables.

    Returns
    -------
    bool
        Whether it does.
    """
    return _has_driver(_settings(given, env), given=given, env=env)


def _settings(given: SubmitArgs, env: Mapping[str, str]) -> dict[str, str]:
    return {**layers.defaults(env=env, args=given), **given.conf}


def _has_driver(settings: Mapping[str, str], *, given: SubmitArgs, env: Mapping[str, str]) -> bool:
    modes = (given.value("--deploy-mode"), settings.get(_DEPLOY_MODE), env.get("DEPLOY_MODE"))
    # What counts is the first that is set; Spark takes an option before a setting.
    return next(filter(None, modes), "client") == "client"


def _may_have_other_default(
    settings: Mapping[str, str], *, home: Path, given: SubmitArgs, env: Mapping[str, str]
) -> bool:
    conf = layers.conf_dir(env=env, home=home)
    return (
        any(key in settings for key in DEFAULT_FS)
        or any(settings.get(key) for key in _CLASS_PATH)
        or any(given.value(option) for option in _CLASS_PATH_OPTIONS)
        or any(env.get(name) for name in _CLASS_PATH_ENV)
        or any((conf / name).is_file() for name in _FILES)
    )
