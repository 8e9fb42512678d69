"""What a running session and its processes have of Statemark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from statemark import doctor_kinds as kinds
from statemark import settings
from statemark._version import __version__
from statemark.checkpoint_facts import PROVIDER, Checkpoint
from statemark.errors import SettingsError
from statemark.running import EXTENSION_LACK, PLUGIN_LACK, installation

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from statemark.doctor_findings import Finding


def findings(
    spark: SparkSession, conf: Mapping[str, str], checkpoint: Checkpoint | None
) -> list[Finding]:
    """Return what a running session and its processes lack.

    Parameters
    ----------
    spark : SparkSession
        The session, classic or Connect.
    conf : Mapping
        Its settings.
    checkpoint : Checkpoint or None
        The checkpoint of a query that is to be started in it.

    Returns
    -------
    list of Finding
        In the order of the table of kinds.
    """
    try:
        rows = installation(spark)
    except SettingsError as error:
        return [
            kinds.SETTINGS_REFUSED.found(error.problem, reason=error.reason, remedy=error.remedy)
        ]
    if rows is None:
        return [
            kinds.SESSION_WITHOUT_JAR.found(
                "the running session does not have Statemark's jar",
                reason="Spark finds no format `statemark` on its class path",
                remedy="call statemark.use(spark), or start the session with"
                " statemark.configure(builder)",
            )
        ]
    versions = {row.process: row.version or __version__ for row in rows}
    found = list(_provider(conf, checkpoint))
    if set(versions.values()) != {__version__}:
        found.append(
            kinds.JAR_VERSIONS.found(
                f"this package is Statemark {__version__}, and the application has another",
                reason=", ".join(f"{process}: {version}" for process, version in versions.items()),
                remedy="start the application with the jar of this package: statemark jar",
                versions=versions,
            )
        )
    (driver,) = (row for row in rows if row.process == "driver")
    lacks = ((driver.extension, EXTENSION_LACK), (driver.plugin, PLUGIN_LACK))
    # In local mode there is no other process for the plugin to talk to.
    is_local = (spark.conf.get("spark.master", "") or "").startswith("local")
    for is_there, (what, remedy) in lacks:
        if not is_there and not (is_local and what == PLUGIN_LACK[0]):
            name, _, without = what.partition(", ")
            reason = without.partition(": ")[2] or without
            found.append(
                kinds.SESSION_LACKS.found(
                    f"the running session lacks {name}", reason=reason, remedy=remedy, lack=name
                )
            )
    return found


def _provider(conf: Mapping[str, str], checkpoint: Checkpoint | None) -> Iterator[Finding]:
    """Find a session whose queries begin on another provider."""
    named = conf.get(PROVIDER)
    # With this setting the plugin names itself for each query as it starts.
    is_late = conf.get(settings.ALLOW_REAL_TIME.key, "").strip().lower() == "true"
    is_pinned = checkpoint is not None and checkpoint.provider is not None
    if named != settings.PROVIDER_CLASS and not is_pinned and not (is_late and named is None):
        yield kinds.PROVIDER_NOT_SET.found(
            f"{PROVIDER} is {named}",
            reason="queries that begin now in this session keep their state there",
            remedy="call statemark.use(spark), or start the session with"
            " statemark.configure(builder)",
            provider=named,
        )
