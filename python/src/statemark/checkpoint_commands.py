"""The commands on a query's checkpoint, as calls from Python."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from numbers import Integral, Real
from typing import TYPE_CHECKING, NoReturn

from statemark import _jvm, arguments, diagnosis, offline, offline_calls, places
from statemark.answers import Answer
from statemark.errors import SettingsError, StatemarkError
from statemark.usage import Parser

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from statemark.diagnosis import Diagnosis


_FLAG = (bool, arguments.TRUTHS)
#: What the arguments of methods have to be.
_KINDS: dict[str, tuple[type, str]] = {
    "deep": _FLAG,
    "to": (str, "pass 'statemark' or 'rocksdb'"),
    "observe": (Real, "pass a number of seconds"),
    "force": _FLAG,
    "dry_run": _FLAG,
    "partitions": (Integral, "pass a whole number"),
    "rollback": _FLAG,
    "skip_uncommitted": _FLAG,
    "file_sink": (str, "pass a path or a URI"),
}
#: Commands on a query that does not run.
_OF_STOPPED = ("switch", "repartition")


class Checkpoint:
    """A query's checkpoint, for the commands on one; made by `checkpoint`.

    Each method starts what the command of its name starts, and waits for it: a process of Spark's
    own, which takes some seconds. What it says meanwhile goes to `sys.stderr`, which a notebook
    shows. An interrupt ends it as Ctrl-C ends the command. No method keeps anything open.
    """

    def __init__(self, location: str, conf: Mapping[str, str], spark: SparkSession | None) -> None:
        self._location, self._conf, self._spark = location, conf, spark

    def inspect(self) -> Answer:
        """Return what the checkpoint holds; nothing is written.

        Returns
        -------
        Answer
            Keys ``provider``, ``operators``, ``totals`` and more.

        Raises
        ------
        StatemarkError
            If it is no checkpoint, or cannot be read.
        """
        return self._run("inspect")

    def verify(self, *, deep: bool = False) -> Answer:
        """Check that every committed batch can be restored; nothing is written.

        Parameters
        ----------
        deep : bool, optional
            Also loads every version from the snapshot before it, and compares the rows.

        Returns
        -------
        Answer
            Keys ``ok``, ``findings``, ``restorableBatches`` and more.

        Raises
        ------
        StatemarkError
            As `inspect`.
        """
        return self._run("verify", deep=deep)

    def switch(
        self, *, to: str, observe: float = 5.0, force: bool = False, dry_run: bool = False
    ) -> Answer:
        """Move a stopped query's checkpoint to another state store provider, in place.

        Parameters
        ----------
        to : str
            ``"statemark"`` or ``"rocksdb"``: the provider to use next.
        observe : float, optional
            Seconds for which the checkpoint is watched for signs of a running query.
        force : bool, optional
            Also where the query seems to run, or its last batch is not committed. A query of
            `spark`'s own application is known to run, and has to be stopped.
        dry_run : bool, optional
            Only checks, and says what would be done.

        Returns
        -------
        Answer
            Keys ``from``, ``to``, ``changedBatches`` and more.

        Raises
        ------
        SettingsError
            If an argument is bad.
        StatemarkError
            If the query runs, or its checkpoint cannot be moved.
        """
        return self._run("switch", to=to, observe=observe, force=force, dry_run=dry_run)

    def repartition(
        self,
        *,
        partitions: int | None = None,
        rollback: bool = False,
        skip_uncommitted: bool = False,
        file_sink: str | os.PathLike[str] | None = None,
        observe: float = 5.0,
        dry_run: bool = False,
    ) -> Answer:
        """Move a stopped query's state onto another number of partitions.

        After an interruption call it again, or with `rollback`; until then the query refuses to
        start.

        Parameters
        ----------
        partitions : int, optional
            The new number of partitions, 1 at least. It or `rollback` is needed.
        rollback : bool, optional
            Takes back a repartition that did not finish.
        skip_uncommitted : bool, optional
            Gives up a last batch that is not committed: the query reads its input again, and a sink
            may get rows twice.
        file_sink : str or os.PathLike, optional
            The directory to which the query writes with Spark's own file sink (parquet, json, …),
            whose log needs an entry of the batch.
        observe, dry_run
            As for `switch`.

        Returns
        -------
        Answer
            What was moved.

        Raises
        ------
        SettingsError
            If an argument is bad.
        StatemarkError
            If the query runs, or its state cannot be moved.
        """
        return self._run(
            "repartition",
            partitions=partitions,
            rollback=rollback,
            skip_uncommitted=skip_uncommitted,
            file_sink=None if file_sink is None else arguments.location("file_sink", file_sink),
            observe=observe,
            dry_run=dry_run,
        )

    def doctor(self) -> Diagnosis:
        """Return what is odd with the checkpoint on this machine, as `statemark.doctor` does.

        Returns
        -------
        Diagnosis
            What is odd, and what was looked at.

        Raises
        ------
        SettingsError
            As `statemark.doctor`.
        """
        return diagnosis.doctor(self._location, spark=self._spark, conf=self._conf)

    def __repr__(self) -> str:
        """Return the location, without looking at it."""
        return f"Checkpoint({self._location!r})"

    def _run(self, command: str, **options: object) -> Answer:
        # The parser of the command line refuses what it would refuse there, and fills in the rest.
        words = [command, "--json"]
        for name, value in options.items():
            kinds, remedy = _KINDS[name]
            if value is not None:
                arguments.refuse_type(name, value, kinds, remedy=remedy)
            option = f"--{name.replace('_', '-')}"
            if value is True:
                words.append(option)
            elif value is not None and value is not False:
                words.append(f"{option}={value}")
        parser: Parser = _Refusing(prog="statemark")
        offline.add_parsers(parser.add_subparsers())
        try:
            args = parser.parse_args([*words, "--", self._location])
        except SettingsError as error:  # without the frames of the parser
            raise error.with_traceback(None) from None
        of_session = diagnosis.settings_of(self._spark)
        if command in _OF_STOPPED:
            self._refuse_running()
        with offline_calls.settings_file(of_session, self._conf) as given:
            try:
                ok, values = offline_calls.answer(args, given=given)
            except StatemarkError as error:
                raise _for_callers(error, options) from None
        return Answer(values, ok=ok)

    def _refuse_running(self) -> None:
        """Refuse a query of the session's own, which the session knows better than its files."""
        file_system, running = _jvm.running(self._spark)
        given = (self._conf.get(key) for key in places.DEFAULT_FS)
        default = next(filter(None, given), file_system)
        for there, query in running.items():
            if places.is_same(self._location, there, file_system=default):
                problem = f"the query of {self._location} runs"
                raise StatemarkError(
                    problem,
                    reason=f"it is query {query} of this session's application",
                    remedy="stop it, then try again",
                )


def checkpoint(
    location: str | os.PathLike[str],
    *,
    spark: SparkSession | None = None,
    conf: Mapping[str, object] | None = None,
) -> Checkpoint:
    """Return an object for the commands on a query's checkpoint. Nothing is read in this call.

    Parameters
    ----------
    location : str or os.PathLike
        A query's checkpoint location, a path or a URI that Spark can read.
    spark : SparkSession, optional
        A running session, whose settings of file systems and jars count, and whose own queries are
        known to run. By default those that a session started here would have:
        ``PYSPARK_SUBMIT_ARGS`` and ``spark-defaults.conf``.
    conf : Mapping, optional
        More settings of Spark, which count before those.

    Returns
    -------
    Checkpoint
        With ``inspect``, ``verify``, ``switch``, ``repartition`` and ``doctor``.

    Examples
    --------
    >>> import statemark
    >>> there = statemark.checkpoint("/data/checkpoint")
    >>> there
    Checkpoint('/data/checkpoint')
    >>> there.inspect()["provider"]  # doctest: +SKIP
    'statemark'
    """
    place = arguments.location("location", location)
    if not place.strip():
        raise places.no_location()
    if spark is not None:
        arguments.refuse_other(spark, "SparkSession", remedy="pass a session that runs")
    return Checkpoint(place, arguments.settings("conf", conf), spark)


def _for_callers(error: StatemarkError, options: Mapping[str, object]) -> StatemarkError:
    """Return a command's error with the names that its options have as arguments."""

    def named(text: str) -> str:
        for name, value in options.items():
            argument = f"{name}=True" if isinstance(value, bool) else name
            text = re.sub(rf"--{name.replace('_', '-')}\b", argument, text)
        return text

    return type(error)(named(error.problem), reason=named(error.reason), remedy=named(error.remedy))


class _Refusing(Parser):
    """A parser whose errors are exceptions."""

    def error(self, message: str) -> NoReturn:
        named = re.sub(
            r"(?:argument )?--([\w-]+)", lambda option: option[1].replace("-", "_"), message
        )
        method = f"statemark.Checkpoint.{self.prog.split()[-1]}"
        problem = f"{self.prog} was not started"
        raise SettingsError(problem, reason=named, remedy=f"correct it: help({method})")
