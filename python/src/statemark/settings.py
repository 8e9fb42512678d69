"""The settings of the state store provider: a table of their keys, and of which values they take.

The plugin checks everything again in the Java virtual machine. Checking here as well puts the
error on the line that holds the mistake, minutes before the first batch would have found it. The
plugin has the same table (`StoreSettings.scala`), and a test compares the two row by row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from statemark import units
from statemark.errors import SettingsError

PREFIX = "spark.sql.streaming.stateStore.statemark."
#: What it is taken for; Spark passes over keys that it does not know.
_SHORT_PREFIX = "spark.statemark."

PROVIDER_CLASS_KEY = "spark.sql.streaming.stateStore.providerClass"
PROVIDER_CLASS = "statemark.spark.StatemarkStateStoreProvider"

PLUGINS_KEY = "spark.plugins"
#: Tells the driver what each executor's local directory holds.
PLUGIN = "statemark.spark.StatemarkPlugin"

_MAX_VERSIONS = 512


@dataclass(frozen=True)
class Setting:
    """A setting of Statemark: a row of the table `SETTINGS`.

    Attributes
    ----------
    name : str
        What follows `PREFIX` in its key.
    unit : str
        What its value is: ``level``, ``bytes``, ``time``, ``count``, ``path``, ``truth`` or
        ``version``.
    default : str or None
        The value that counts where none is set; None for none.
    allowed : str
        Which values it takes, as it ends the sentence "it must be …".
    text : str
        What it decides.
    parser : callable
        Returns a value as it is written in Spark's configuration, or raises `units.RefusedError`.
    """

    name: str
    unit: str
    default: str | None
    allowed: str
    text: str
    parser: Callable[[object], str]

    @property
    def key(self) -> str:
        """The key in Spark's configuration."""
        return PREFIX + self.name

    def written(self, value: object) -> str:
        """Return a value as it is written in Spark's configuration.

        Parameters
        ----------
        value : object
            A value; text is taken in either case, where case has no meaning, and with blanks
            around it.

        Returns
        -------
        str
            The same as text, without surrounding blanks.

        Raises
        ------
        SettingsError
            If the setting does not take it.

        Examples
        --------
        >>> from statemark import settings
        >>> settings.MAX_UNCOMMITTED_BYTES.written("64M")
        '64m'
        >>> settings.LOCAL_DIR_MAX_AGE.written("12H")
        '12h'
        """
        try:
            return self.parser(value)
        except units.RefusedError as refused:
            problem = f"bad value {value!r} for {self.key}"
            remedy = f"use {self.allowed}"
            raise SettingsError(problem, reason=refused.reason, remedy=remedy) from None


ISOLATION_LEVEL = Setting(
    "isolationLevel",
    "level",
    "READ_COMMITTED",
    "READ_COMMITTED or READ_UNCOMMITTED, in either case",
    "what a live read sees that does not say otherwise",
    units.level,
)
MAX_UNCOMMITTED_BYTES = Setting(
    "maxUncommittedBytes",
    "bytes",
    "auto",
    "a size above 0 such as 64m or 268435456, -1 for no limit, or auto",
    "heap that staged writes and prepared versions of all stores of an executor may take together",
    lambda value: units.size(value, words=("auto", "-1")),
)
LOCAL_DIR = Setting(
    "localDir",
    "path",
    None,
    "an absolute path, or file: and an absolute path",
    "where stores live on each executor, also across restarts",
    units.directory,
)
LOCAL_DIR_MAX_BYTES = Setting(
    "localDirMaxBytes",
    "bytes",
    None,
    "a size above 0 such as 50g or 53687091200",
    "how much the stores in localDir that no process uses may take",
    units.size,
)
LOCAL_DIR_MAX_AGE = Setting(
    "localDirMaxAge",
    "time",
    "7d",
    "a time above 0 such as 7d or 12h",
    "how long a store in localDir stays that no process uses",
    units.duration,
)
READ_RETENTION_VERSIONS = Setting(
    "readRetentionVersions",
    "count",
    "3",
    f"a number from 0 to {_MAX_VERSIONS}",
    "how many versions that a store has left live reads may still see",
    lambda value: units.count(value, most=_MAX_VERSIONS),
)
READ_RETENTION_TIME = Setting(
    "readRetentionTime",
    "time",
    "30s",
    "a time above 0 such as 30s or 5m",
    "how long a live read may see the version that it was planned for",
    units.duration,
)

CHECK_OFFSETS = Setting(
    "checkOffsets",
    "word",
    "refuse",
    "refuse or warn",
    "what a task does whose store holds other source offsets than its batch begins at",
    units.word("refuse", "warn"),
)

KAFKA_WARNINGS = Setting(
    "kafka.warnings",
    "truth",
    "true",
    "true or false",
    "whether a query is warned that Spark's own Kafka sink, or a read without read_committed, may"
    " give rows twice",
    units.truth,
)

ALLOW_REAL_TIME = Setting(
    "allowRealTime",
    "truth",
    "false",
    "true or false",
    "whether providerClass is set for each micro-batch query as it starts, so that real-time"
    " queries start, too",
    units.truth,
)

PACKAGE_VERSION = Setting(
    "packageVersion",
    "version",
    None,
    "a version such as 0.1.0",
    "version of the jar that the driver must have: that of the Python package that set the session"
    " up",
    units.version,
)

#: The table of all settings.
SETTINGS = (
    ISOLATION_LEVEL,
    MAX_UNCOMMITTED_BYTES,
    LOCAL_DIR,
    LOCAL_DIR_MAX_BYTES,
    LOCAL_DIR_MAX_AGE,
    READ_RETENTION_VERSIONS,
    READ_RETENTION_TIME,
    CHECK_OFFSETS,
    KAFKA_WARNINGS,
    ALLOW_REAL_TIME,
    PACKAGE_VERSION,
)


def check(options: Mapping[str, object], *, source: str) -> None:
    """Refuse options under the provider's prefix that the provider would refuse.

    Parameters
    ----------
    options : Mapping
        Options of Spark; those outside the prefix are passed over, but for those that begin
        with ``spark.statemark.``.
    source : str
        Where they were set, for the error.

    Raises
    ------
    SettingsError
        If a key under a prefix is unknown, or its value is bad.
    """
    # Spark's keys are case-sensitive, so a prefix in the wrong case is a typing error as well. The
    # provider takes what follows the prefix in either case.
    rows = {setting.name.lower(): setting for setting in SETTINGS}
    for key, value in options.items():
        if key.lower().startswith(_SHORT_PREFIX):
            meant = rows.get(key[len(_SHORT_PREFIX) :].lower())
            problem = f"unknown setting {key} = {value!r}, set in {source}"
            raise SettingsError(
                problem,
                reason=f"settings of Statemark begin with {PREFIX}",
                remedy=f"use {meant.key}" if meant else _remedy(key[len(_SHORT_PREFIX) :]),
            )
        if not key.lower().startswith(PREFIX.lower()):
            continue
        known = rows.get(key[len(PREFIX) :].lower()) if key.startswith(PREFIX) else None
        if known is None:
            problem = f"unknown setting {key} = {value!r}, set in {source}"
            raise SettingsError(
                problem,
                reason="no setting of Statemark has this key",
                remedy=_remedy(key[len(PREFIX) :]),
            )
        known.written(str(value))


def _remedy(name: str) -> str:
    """Say which setting was meant, or which there are."""
    names = {row.name.lower(): row.name for row in SETTINGS}
    if meant := get_close_matches(name.lower(), names, n=1):
        return f"did you mean {PREFIX}{names[meant[0]]}?"
    return f"remove it, or use {' or '.join(names.values())}, each after {PREFIX}"
