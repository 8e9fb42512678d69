"""What is odd on this machine, in these settings and with this checkpoint, and what to do."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from statemark import (
    arguments,
    checkpoint_files,
    doctor_checkpoint,
    doctor_disk,
    doctor_elsewhere,
    doctor_memory,
    doctor_report,
    doctor_restart,
    doctor_session,
    doctor_settings,
    doctor_software,
    json_output,
    layers,
    offline_calls,
    places,
)
from statemark.checkpoint_facts import Checkpoint
from statemark.doctor_findings import PROBLEM, Finding
from statemark.doctor_report import Examined
from statemark.doctor_situation import Situation
from statemark.errors import SettingsError
from statemark.jars import spark_line

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Reads a checkpoint that is not on this machine's disks.
Inspect = Callable[[str], Checkpoint]


@dataclass(frozen=True)
class Diagnosis:
    """What `doctor` found.

    Attributes
    ----------
    findings : tuple of Finding
        What is odd, problems first; empty where all is well.
    facts : dict of str to tuple of str
        What was looked at, lines by what they are about.
    values : dict of str to object
        The same for programs; sizes in bytes.
    """

    findings: tuple[Finding, ...]
    facts: dict[str, tuple[str, ...]]
    values: dict[str, object] = field(repr=False)

    @property
    def ok(self) -> bool:
        """Tell whether nothing is odd."""
        return not self.findings

    @property
    def verdict(self) -> str:
        """One line: ``ok``, or how many problems and warnings there are."""
        problems = sum(finding.severity == PROBLEM for finding in self.findings)
        counts = ((problems, "problem"), (len(self.findings) - problems, "warning"))
        told = [f"{n} {word}{'' if n == 1 else 's'}" for n, word in counts if n]
        return ", ".join(told) if told else "ok: nothing odd"

    def __str__(self) -> str:
        """Return the verdict, what is odd, and what was looked at."""
        lines = [self.verdict, *map(str, self.findings)]
        for name, told in self.facts.items():
            lines.append(f"{name:<11} {told[0]}")
            lines += [f"{'':<11} {line}" for line in told[1:]]
        return "\n".join(lines)

    __repr__ = __str__  # notebooks show it

    def to_json(self) -> str:
        """Return all of it as one JSON object, as ``statemark doctor --json`` prints it.

        Returns
        -------
        str
            The object, on one line.
        """
        findings = [asdict(finding) for finding in self.findings]
        return json_output.of({"ok": self.ok, "findings": findings} | self.values)


def doctor(
    checkpoint: str | os.PathLike[str] | None = None,
    *,
    spark: SparkSession | None = None,
    conf: Mapping[str, object] | None = None,
) -> Diagnosis:
    """Tell what is odd on this machine, in settings, and with a query's checkpoint.

    Reads files and environment variables, and changes nothing. A session is asked which parts of
    Statemark its processes have; for a checkpoint that is not on this machine's disks, spark-submit
    starts ``statemark inspect``. Everything else needs no JVM.

    Parameters
    ----------
    checkpoint : str or os.PathLike, optional
        A query's checkpoint location, a path or a URI that Spark can read. With it, the answer has
        what a restart of the query on this machine would read.
    spark : SparkSession, optional
        A running session, classic or Connect, whose settings count. By default those that a
        session started here would have: ``PYSPARK_SUBMIT_ARGS`` and ``spark-defaults.conf``.
    conf : Mapping, optional
        More settings of Spark, which count before those.

    Returns
    -------
    Diagnosis
        What is odd, and what was looked at. ``print`` shows it.

    Raises
    ------
    SettingsError
        If nothing is at the checkpoint location, or it is no checkpoint.

    Notes
    -----
    Every kind of finding is in docs/doctor.md.

    Examples
    --------
    >>> import statemark
    >>> print(statemark.doctor("/data/checkpoint"))  # doctest: +SKIP
    ok: nothing odd
    …
    >>> [finding.name for finding in statemark.doctor(spark=spark).findings]  # doctest: +SKIP
    ['session-lacks']
    """
    arguments.refuse_stopped(spark)
    if spark is not None:
        arguments.refuse_other(spark, "SparkSession", remedy="pass a session that runs")
    own = arguments.settings("conf", conf)
    of_session = settings_of(spark)
    found = {**of_session, **own}
    location = None if checkpoint is None else arguments.location("checkpoint", checkpoint)

    def inspect(elsewhere: str) -> Checkpoint:
        with offline_calls.settings_file(of_session, own) as given:
            return doctor_elsewhere.inspected(elsewhere, given=given)

    return examine(location, conf=found, inspect=inspect, spark=spark)


def examine(
    location: str | None,
    *,
    conf: Mapping[str, str],
    inspect: Inspect,
    spark: SparkSession | None = None,
) -> Diagnosis:
    """Look at everything, as `doctor` does, with settings from wherever.

    Parameters
    ----------
    location : str or None
        The checkpoint.
    conf : Mapping
        Spark's settings.
    inspect : callable
        Reads a checkpoint that is not on this machine's disks.
    spark : SparkSession, optional
        A running session.

    Returns
    -------
    Diagnosis
        What was found.

    Raises
    ------
    SettingsError
        As `doctor` does.
    """
    checkpoint = None if location is None else _checkpoint(location, inspect)
    found: list[Finding] = []
    software = None
    if spark is None:
        software = doctor_software.look(os.environ)
        found += software.findings
        version = software.spark
    else:
        version = spark.version
        found += doctor_session.findings(spark, conf, checkpoint)
    about = Situation(
        conf=conf,
        env=os.environ,
        line=spark_line(spark_version=version) if version else None,
        checkpoint=checkpoint,
        spark_home=software.spark_home if software else None,
        has_session=spark is not None,
    )
    disk, memory = doctor_disk.look(about), doctor_memory.look(about)
    restart = doctor_restart.look(about)
    seen = Examined(about, software, version, disk, memory, restart)
    # A session that refuses its settings has told so already.
    found += [finding for finding in doctor_settings.findings(about) if finding not in found]
    found += doctor_memory.findings(memory)
    download = restart.snapshot_bytes if restart else None
    found += doctor_disk.findings(about, disk, download_bytes=download or 0)
    found += doctor_checkpoint.findings(about, restart)
    return Diagnosis(
        findings=tuple(sorted(found, key=lambda finding: finding.severity != PROBLEM)),
        facts=doctor_report.facts(seen),
        values=doctor_report.values(seen),
    )


def settings_of(spark: SparkSession | None) -> Mapping[str, str]:
    """Return the settings of a session, or those that one started here would have."""
    if spark is not None:
        return dict(spark.conf.getAll)
    return doctor_elsewhere.settings_of(layers.submit_args(env=os.environ))


def _checkpoint(location: str, inspect: Inspect) -> Checkpoint:
    if not location.strip():
        raise places.no_location()
    path = re.sub(r"^file:(?://(?:localhost)?(?=/))?", "", location)
    try:
        # What has this path on this machine is taken for what is meant.
        if Path(path).is_file():
            raise checkpoint_files.NoCheckpointError
        if not Path(path).is_dir():
            return inspect(location)
        return checkpoint_files.read(Path(path))
    except checkpoint_files.NoCheckpointError as error:
        raise places.no_checkpoint(location, str(error)) from error
    except OSError as error:
        problem = f"{location} cannot be read"
        remedy = "give whoever runs this command the right to read it"
        raise SettingsError(problem, reason=str(error), remedy=remedy) from error
