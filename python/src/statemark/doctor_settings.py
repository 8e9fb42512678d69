"""Settings that are refused, have no effect, or undo each other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from statemark import doctor_kinds as kinds
from statemark import layers, settings, units
from statemark.doctor_findings import Finding, size_text
from statemark.errors import SettingsError
from statemark.running import PLUGIN_LACK

if TYPE_CHECKING:
    from statemark.doctor_situation import Situation

_MIB = 1024 * 1024
_REFUSES_REAL_TIME = (4, 3)
_MOST_DELTAS = 100
_LONGEST_INTERVAL_S = 600
_BRINGS_JARS = (layers.JARS, "spark.jars.packages")
_CLASS_PATHS = {
    "driver": "spark.driver.extraClassPath",
    "executors": "spark.executor.extraClassPath",
}

_Parse = Callable[[str], object]
_SIZE: tuple[_Parse, str] = (lambda text: units.size_bytes(text), "a size, such as 4g")
_DURATION: tuple[_Parse, str] = (lambda text: units.seconds(text), "a duration, such as 60s")
_NUMBER: tuple[_Parse, str] = (units.number, "a whole number")
_FRACTION: tuple[_Parse, str] = (units.fraction, "a number from 0 on")
_TRUTH: tuple[_Parse, str] = (
    lambda text: {"true": 1, "false": 0}.get(text.lower()),
    "true or false",
)
#: Those of Spark's settings that this command counts with.
_SPARKS_VALUES = (
    ("spark.driver.memory", _SIZE),
    ("spark.driver.memoryOverhead", _SIZE),
    ("spark.driver.memoryOverheadFactor", _FRACTION),
    ("spark.executor.memory", _SIZE),
    ("spark.executor.memoryOverhead", _SIZE),
    ("spark.executor.memoryOverheadFactor", _FRACTION),
    ("spark.executor.cores", _NUMBER),
    ("spark.executor.instances", _NUMBER),
    ("spark.io.encryption.enabled", _TRUTH),
    ("spark.locality.wait", _DURATION),
    ("spark.sql.shuffle.partitions", _NUMBER),
    ("spark.sql.streaming.stateStore.maintenanceInterval", _DURATION),
    ("spark.sql.streaming.stateStore.minDeltasForSnapshot", _NUMBER),
    ("spark.sql.streaming.stateStore.checkpointFormatVersion", _NUMBER),
)


def findings(about: Situation) -> list[Finding]:
    """Return what is odd in settings.

    Parameters
    ----------
    about : Situation
        The settings, and what else counts.

    Returns
    -------
    list of Finding
        In the order of the table of kinds.
    """
    return [finding for rule in _RULES for finding in rule(about)]


def _refused(about: Situation) -> Iterator[Finding]:
    try:
        settings.check(dict(about.conf), source="the settings")
    except SettingsError as error:
        yield kinds.SETTINGS_REFUSED.found(error.problem, reason=error.reason, remedy=error.remedy)
    for setting in settings.SETTINGS:
        keys = about.keys_of(setting)
        if len(keys) > 1:
            yield kinds.SETTINGS_REFUSED.found(
                f"{setting.key} is set {len(keys)} times, as {' and as '.join(keys)}",
                reason="the names of Statemark's settings count in either case",
                remedy="leave one of them",
                keys=keys,
            )


def _values(about: Situation) -> Iterator[Finding]:
    """Find values of Spark's settings that Spark refuses; those of a session it has taken."""
    for key, text in {} if about.has_session else _SPARKS_VALUES:
        value = about.conf.get(key)
        parse, wanted = text
        if value is not None and parse(value.strip()) is None:
            yield kinds.SETTINGS_REFUSED.found(
                f"{key} is {value!r}",
                reason=f"Spark wants {wanted} there",
                remedy="correct it, or leave it away",
                key=key,
                value=value,
            )


def _jar(about: Situation) -> Iterator[Finding]:
    """Find a provider whose class Spark will not find; in a session that runs it is looked for."""
    if not about.is_set or about.has_session:
        return
    if any("statemark" in about.conf.get(key, "") for key in _BRINGS_JARS):
        return
    # As an image of a cluster may have it.
    if about.spark_home and any(Path(about.spark_home, "jars").glob("*statemark*.jar")):
        return
    named = {where: bool(about.conf.get(key)) for where, key in _CLASS_PATHS.items()}
    if not named["driver"]:
        yield kinds.JAR_NOT_NAMED.found(
            f"{settings.PROVIDER_CLASS_KEY} names Statemark, and no setting brings its jar",
            reason="neither spark.jars nor spark.jars.packages has it, and"
            f" {_CLASS_PATHS['driver']} is not set",
            remedy="start Spark with the flags of `statemark conf`, or with statemark.configure",
        )
    elif not about.is_local and not named["executors"]:
        yield kinds.JAR_NOT_ON_EXECUTORS.found(
            f"the jar can only come from {_CLASS_PATHS['driver']}",
            reason=f"Spark sends executors what spark.jars names; {_CLASS_PATHS['executors']} is"
            " not set",
            remedy=f"use --jars or spark.jars, or set {_CLASS_PATHS['executors']} where the jar is"
            " installed on the executors",
            driver=about.conf[_CLASS_PATHS["driver"]],
        )


def _plugin(about: Situation) -> Iterator[Finding]:
    """Find a cluster without the plugin; a session that runs is asked itself."""
    plugins = [name.strip() for name in about.conf.get(settings.PLUGINS_KEY, "").split(",")]
    is_asked = about.is_set and not about.is_local and not about.has_session
    if is_asked and settings.PLUGIN not in plugins:
        what, remedy = PLUGIN_LACK
        yield kinds.PLUGIN_NOT_SET.found(
            f"{settings.PLUGINS_KEY} does not name {settings.PLUGIN}",
            reason=f"the application will lack {what}",
            remedy=remedy,
            plugins=about.conf.get(settings.PLUGINS_KEY, ""),
        )


def _encryption(about: Situation) -> Iterator[Finding]:
    named = about.own(settings.LOCAL_DIR)
    if named and about.is_encrypted:
        yield kinds.ENCRYPTED_LOCAL_DIR.found(
            f"{settings.LOCAL_DIR.key} is {named}, and spark.io.encryption.enabled is true",
            reason="what stays in that directory would not be encrypted, so that queries are"
            " refused",
            remedy="leave one of the two away; or name a directory on an encrypted volume and"
            " switch Spark's encryption off",
            localDir=named,
        )


def _real_time(about: Situation) -> Iterator[Finding]:
    """Find sessions of Spark 4.3 in which no real-time query starts."""
    if about.line is None or about.line < _REFUSES_REAL_TIME or not about.is_set:
        return
    if (about.own(settings.ALLOW_REAL_TIME) or "").strip().lower() != "true":
        yield kinds.REAL_TIME_REFUSED.found(
            f"{settings.ALLOW_REAL_TIME.key} is not true",
            reason=f"Spark {about.line[0]}.{about.line[1]} refuses real-time queries in a session"
            f" that names a provider in {settings.PROVIDER_CLASS_KEY}, those without state too",
            remedy=f"set {settings.ALLOW_REAL_TIME.key}=true, as `statemark conf` does, or leave it"
            " where no query of the session runs in real-time mode",
        )


def _changelogs(about: Situation) -> Iterator[Finding]:
    name = "rocksdb.changelogCheckpointing.enabled"
    if about.is_set and about.of_store(name).lower() == "false":
        yield kinds.CHANGELOGS_ANYWAY.found(
            f"spark.sql.streaming.stateStore.{name} is false",
            reason="Statemark writes changelogs whatever it says",
            remedy="leave it away",
        )


def _native(about: Situation) -> Iterator[Finding]:
    """Find sizes by hand that take Statemark's bound away, and bounds that a container has not."""
    prefix = "spark.sql.streaming.stateStore."
    by_hand = about.sizes_by_hand
    bounded = about.of_store("rocksdb.boundedMemoryUsage").lower()
    named = about.of_store("rocksdb.maxMemoryUsageMB")
    if about.is_set and bounded != "true" and (by_hand or bounded == "false"):
        what = by_hand[0] if by_hand else "rocksdb.boundedMemoryUsage"
        ignored = f"; rocksdb.maxMemoryUsageMB={named} has no effect" if named else ""
        yield kinds.NATIVE_UNBOUNDED.found(
            f"{prefix}{what} is set, and native memory has no bound{ignored}",
            reason="with one of these settings a session gets the native memory of Spark's"
            " provider: a cache for each store, and no bound on the rest",
            remedy=f"leave {what} away, or set {prefix}rocksdb.boundedMemoryUsage=true and"
            f" {prefix}rocksdb.maxMemoryUsageMB",
            set=by_hand or ["rocksdb.boundedMemoryUsage"],
        )
    bound = (units.number(named) or 0) * _MIB
    if about.is_set and not about.is_local and bound > about.overhead_bytes:
        yield kinds.NATIVE_OVER_OVERHEAD.found(
            f"{prefix}rocksdb.maxMemoryUsageMB is {named}, and the memory overhead of an executor"
            f" {size_text(about.overhead_bytes)}",
            reason="native memory of stores lies in the overhead, beside what Spark itself needs"
            " there; a container that holds executors to it ends them",
            remedy="raise spark.executor.memoryOverhead to twice the bound, or lower the bound",
            boundBytes=bound,
            overheadBytes=about.overhead_bytes,
        )


def _uncommitted(about: Situation) -> Iterator[Finding]:
    limit = units.size_bytes(about.own(settings.MAX_UNCOMMITTED_BYTES))
    if limit is not None and limit > about.heap_bytes / 2:
        yield kinds.UNCOMMITTED_OVER_HEAP.found(
            f"{settings.MAX_UNCOMMITTED_BYTES.key} is {size_text(limit)}, and the heap"
            f" {size_text(about.heap_bytes)}",
            reason="uncommitted writes may then take more than half of the heap, of which Spark"
            " takes three fifths for its own data",
            remedy=f"raise spark.{about.role}.memory, or lower the limit: what is over it goes to"
            " the local disk",
            limitBytes=limit,
            heapBytes=about.heap_bytes,
        )


def _snapshots(about: Situation) -> Iterator[Finding]:
    interval = about.of_store("maintenanceInterval", "60s")
    seconds = units.seconds(interval) or 0
    if about.min_deltas > _MOST_DELTAS or seconds > _LONGEST_INTERVAL_S:
        yield kinds.SNAPSHOTS_RARE.found(
            f"minDeltasForSnapshot is {about.min_deltas}, and maintenanceInterval {interval}",
            reason="a load replays every changelog since the last snapshot, and that many may lie"
            " in between",
            remedy="lower the one that is high; the defaults are 10 and 60s",
            minDeltasForSnapshot=about.min_deltas,
            maintenanceInterval=interval,
        )


def _locality(about: Situation) -> Iterator[Finding]:
    wait = about.conf.get("spark.locality.wait", "3s")
    if not about.is_local and about.own(settings.LOCAL_DIR) and units.seconds(wait) == 0:
        yield kinds.LOCALITY_OFF.found(
            f"spark.locality.wait is {wait}, and {settings.LOCAL_DIR.key} is set",
            reason="Spark then starts a task on the first executor that is free, and not on the one"
            " that has its store on disk",
            remedy="leave spark.locality.wait at 3s, or raise it",
        )


_RULES: tuple[Callable[[Situation], Iterator[Finding]], ...] = (
    _refused,
    _values,
    _jar,
    _plugin,
    _encryption,
    _real_time,
    _changelogs,
    _native,
    _uncommitted,
    _snapshots,
    _locality,
)
