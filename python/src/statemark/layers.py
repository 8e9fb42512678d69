"""Where Spark takes ``spark.jars`` from, and how to add to it without hiding anything.

Three layers can name jars, and in Spark a higher one hides the lower ones as a whole:

1. options of the builder, which decide what the executors get;
2. ``PYSPARK_SUBMIT_ARGS``, which there hide the builder's for the *driver's* class path;
3. properties files: those of ``--properties-file`` and the like, else ``spark-defaults.conf``.

Adding a jar to one layer thus takes away the jars of another. The functions here read each
layer; `merge` joins them in this order, in which the class path is searched.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from statemark import arguments, properties, settings
from statemark.errors import SettingsError
from statemark.jars import spark_home

JARS = "spark.jars"

# spark-submit's options that take no value; all others take one.
_FLAGS = frozenset(
    ("--help", "-h", "--supervise", "--usage-error", "--verbose", "-v", "--version")
) | {"--load-spark-defaults"}


@dataclass(frozen=True)
class SubmitArgs:
    """Arguments for spark-submit.

    Parameters
    ----------
    options : tuple of (str, str or None)
        Options with their values, in order; None for a flag.
    application : tuple of str
        What follows them: the application and its own arguments.
    """

    options: tuple[tuple[str, str | None], ...]
    application: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> SubmitArgs:
        """Read arguments as spark-submit does.

        Parameters
        ----------
        text : str
            Arguments, quoted as for a shell.

        Returns
        -------
        SubmitArgs
            What was read.

        Raises
        ------
        SettingsError
            If a quotation mark is not closed.
        """
        try:
            tokens = shlex.split(text)
        except ValueError as error:
            problem = f"PYSPARK_SUBMIT_ARGS cannot be read: {text!r}"
            remedy = "quote it as for a shell"
            raise SettingsError(problem, reason=str(error), remedy=remedy) from error
        options: list[tuple[str, str | None]] = []
        while tokens and tokens[0].startswith("-"):
            token = tokens.pop(0)
            name, equals, value = token.partition("=")
            if token in _FLAGS:
                options.append((token, None))
            elif equals and token.startswith("--"):
                options.append((name, value))
            else:
                options.append((token, tokens.pop(0) if tokens else None))
        return cls(tuple(options), tuple(tokens))

    @property
    def conf(self) -> dict[str, str]:
        """The settings of ``--conf``; a later one hides an earlier one."""
        pairs = (value.partition("=") for value in self._values("--conf", "-c"))
        return {key.strip(): value.strip() for key, _, value in pairs}

    @property
    def jars(self) -> str:
        """The jars that count: ``--jars`` hides ``--conf spark.jars``."""
        named = self._values("--jars")
        return named[-1] if named else self.conf.get(JARS, "")

    def value(self, name: str) -> str:
        """Return the value of an option that counts once, the last one; empty if it is not there.

        Parameters
        ----------
        name : str
            The option, as ``--packages``.

        Returns
        -------
        str
            Its value.
        """
        return (self._values(name) or [""])[-1]

    @property
    def properties_files(self) -> list[str]:
        """Properties files in the order in which they are read, later ones hiding earlier ones."""
        return self._values("--properties-file")[-1:] + self._values("--extra-properties-file")

    @property
    def load_defaults(self) -> bool:
        """Tell whether ``spark-defaults.conf`` counts."""
        asked = ("--load-spark-defaults", None) in self.options
        return asked or not self._values("--properties-file")

    def with_jars(self, jars: str) -> str:
        """Return the same arguments with other jars.

        Parameters
        ----------
        jars : str
            Comma-separated.

        Returns
        -------
        str
            Arguments, quoted as for a shell.
        """
        tokens = ["--jars", jars]
        for name, value in self.options:
            if name != "--jars":
                tokens += [name] if value is None else [name, value]
        return shlex.join([*tokens, *self.application])

    def _values(self, *names: str) -> list[str]:
        return [value for name, value in self.options if name in names and value is not None]


def submit_args(*, env: Mapping[str, str]) -> SubmitArgs:
    """Return what pyspark will pass to spark-submit.

    Parameters
    ----------
    env : Mapping
        Environment variables.

    Returns
    -------
    SubmitArgs
        What ``PYSPARK_SUBMIT_ARGS`` says, or pyspark's own default.
    """
    return SubmitArgs.parse(env.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))


def conf_dir(*, env: Mapping[str, str], home: Path | None = None) -> Path:
    """Return the directory of Spark's files of settings; `home` is Spark's where it is known."""
    named = env.get("SPARK_CONF_DIR")
    return Path(named) if named else (home or spark_home(env=env)) / "conf"


def defaults(*, env: Mapping[str, str], args: SubmitArgs | None = None) -> dict[str, str]:
    """Return the settings of the lowest layer.

    Parameters
    ----------
    env : Mapping
        Environment variables; ``SPARK_CONF_DIR`` and ``SPARK_HOME`` count.
    args : SubmitArgs, optional
        The layer above, which may name other files than ``spark-defaults.conf``.

    Returns
    -------
    dict of str to str
        Settings by key; empty if there is no ``spark-defaults.conf``, as it is for Spark.

    Raises
    ------
    SettingsError
        If a file that the layer above names is not there, or one cannot be read.
    """
    files: list[Path] = []
    if args is None or args.load_defaults:
        files.append(conf_dir(env=env) / "spark-defaults.conf")
    named = [] if args is None else args.properties_files
    for file in map(Path, named):
        reason = arguments.why_unreadable(file)
        if reason:
            problem = f"the file of settings {file} cannot be read"
            raise SettingsError(problem, reason=reason, remedy="correct --properties-file")
    files += map(Path, named)
    found: dict[str, str] = {}
    for file in files:
        found |= properties.read(file)
    return found


def merge(*lists: str) -> str:
    """Join comma-separated lists of jars, each jar once, at its first place.

    Parameters
    ----------
    *lists : str
        Comma-separated paths and URIs.

    Returns
    -------
    str
        Comma-separated.

    Examples
    --------
    >>> from statemark.layers import merge
    >>> merge("/a.jar, /b.jar", "file:///a.jar,/c.jar")
    '/a.jar,/b.jar,/c.jar'
    """
    kept: dict[str, str] = {}
    for jar in _split(lists):
        kept.setdefault(_identity(jar), jar)
    return ",".join(kept.values())


def with_plugin(plugins: str) -> str:
    """Add Statemark's plugin to others.

    Parameters
    ----------
    plugins : str
        Comma-separated names of classes, as ``spark.plugins`` has them.

    Returns
    -------
    str
        Comma-separated; Statemark's is the last.

    Examples
    --------
    >>> from statemark.layers import with_plugin
    >>> with_plugin("a.Plugin, statemark.spark.StatemarkPlugin,b.Plugin")
    'a.Plugin,b.Plugin,statemark.spark.StatemarkPlugin'
    """
    others = [name for name in _split((plugins,)) if name != settings.PLUGIN]
    return ",".join([*others, settings.PLUGIN])


def contains(jars: str, jar: str) -> bool:
    """Return whether a list of jars has a jar in it.

    Parameters
    ----------
    jars : str
        Comma-separated paths and URIs.
    jar : str
        A path or a URI.

    Returns
    -------
    bool
        True if it does, in whichever spelling.
    """
    return _identity(jar) in {_identity(other) for other in _split([jars])}


def _split(lists: Iterable[str]) -> Iterable[str]:
    return (jar.strip() for text in lists for jar in text.split(",") if jar.strip())


def _identity(jar: str) -> str:
    """Return one spelling for all ways to write a local path: two would be two jars to Spark."""
    local = re.fullmatch(r"file:(?://(?:localhost)?)?(/.*)", jar)
    if local:
        return os.path.normpath(unquote(local[1]))
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]+:", jar):
        return jar
    return os.path.abspath(jar)  # noqa: PTH100 - collapses "..", which pathlib does not
