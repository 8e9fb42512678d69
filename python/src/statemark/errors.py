"""Every error that the package raises on its own account.

There are few types, split by what the caller does next; each says which in its first line.
Messages name the problem, the reason, the remedy and the values. Their wording may change,
their types and attributes do not.

A failure in the virtual machine has a kind there, and one class for each kind here (`KINDS`).
Over Spark Connect messages and conditions travel alone; a condition has the name of the kind.
"""

from __future__ import annotations

from typing import ClassVar


class StatemarkError(Exception):
    """Base of all errors of this package.

    Attributes
    ----------
    is_retryable : bool
        Whether the same call can succeed when it is made again, and nothing else is changed.

    Parameters
    ----------
    problem : str
        What failed, with the values.
    reason : str
        Why it failed.
    remedy : str
        What to do about it.

    Examples
    --------
    >>> from statemark import StatemarkError
    >>> print(StatemarkError("the lamp is dark", reason="no bulb", remedy="put one in"))
    the lamp is dark
      reason: no bulb
      remedy: put one in
    """

    is_retryable: ClassVar[bool] = False

    def __init__(self, problem: str, *, reason: str, remedy: str) -> None:
        super().__init__(f"{problem}\n  reason: {reason}\n  remedy: {remedy}")
        self.problem = problem
        self.reason = reason
        self.remedy = remedy

    def __reduce__(self) -> tuple[object, ...]:
        # Exceptions pickle by their positional arguments, of which this one has others.
        return (_rebuild, (type(self), self.problem, self.reason, self.remedy))


def _rebuild(kind: type[StatemarkError], problem: str, reason: str, remedy: str) -> StatemarkError:
    return kind(problem, reason=reason, remedy=remedy)


class SettingsError(StatemarkError, ValueError):
    """Correct the call: a setting has an unknown key or a bad value."""


class MissingDependencyError(StatemarkError, ImportError):
    """Install something: an optional Python package is absent."""


class JarNotFoundError(StatemarkError, FileNotFoundError):
    """Build, reinstall, or give it to Spark: the plugin's jar is not where it should be."""


class SparkVersionError(StatemarkError):
    """Change the version of Spark or of this package: no bundled jar fits."""


class ConnectError(StatemarkError):
    """Configure the server instead: a Spark Connect client cannot choose the state store."""


class SessionRunningError(StatemarkError):
    """Restart: Spark already runs, and what was asked for takes effect only at its start."""


class EngineError(StatemarkError):
    """Base of the kinds of failures in the virtual machine."""


class LiveReadError(EngineError):
    """Correct the key, or read again: a running query gave no answer to a read."""


class InvalidInputError(LiveReadError):
    """Correct the input: a setting, an option, or a key is wrong."""


class StoreMovedError(LiveReadError):
    """Read again: the store is not open any more on the executor that was asked."""

    is_retryable = True


class StoreUnreachableError(LiveReadError):
    """Read again: the executor that has the store did not answer."""

    is_retryable = True


class LookupTimeoutError(LiveReadError):
    """Wait longer: a store is open nowhere, and no executor has read it within `timeout`."""

    is_retryable = True


class VersionGoneError(LiveReadError):
    """Read again: the store does not keep the version any more that the read was planned for."""

    is_retryable = True


class ViewClosedError(LiveReadError):
    """Read again: the store was unloaded, or its transaction ended, under the read."""

    is_retryable = True


class PositionBoundError(LiveReadError):
    """Wait longer: no committed batch includes the position that the read is bound to."""

    is_retryable = True


class OffsetsDifferError(LiveReadError):
    """Bring the offset log back: a store holds other source offsets than the log has for it."""


class CallInterruptedError(LiveReadError):
    """Stop: the thread of the virtual machine was interrupted, and nothing is damaged."""


class CheckpointDamagedError(LiveReadError):
    """Bring a file back from a copy: one in the checkpoint location is missing or damaged."""


class StoreUnusableError(LiveReadError):
    """Run the batch again: the local copy of a store is damaged, and is loaded again."""

    is_retryable = True


class LocalRejectedError(EngineError):
    """Do nothing: what an earlier process left of a store is rejected, and is loaded again."""

    is_retryable = True


class ScratchFullError(EngineError):
    """Make room: the local disk does not take what a batch stages over the limit."""


class DiskUnwritableError(LiveReadError):
    """Make room: a disk that a store writes to is full, over its quota, or read-only."""


class StaleTaskError(EngineError):
    """Do nothing: a task came too late, and another attempt has replaced it."""


class IllegalCallError(EngineError):
    """Correct the code: an object does not allow the call any more, as a closed scan."""


class SinkError(EngineError):
    """Base of the kinds of failures of the Kafka sink."""


class MissingLibraryError(SinkError):
    """Start Spark with Kafka's client library: it is not on the class path."""


class RefusedSettingError(SinkError):
    """Correct the option: it is refused, or what it asks for does not fit the topic."""


class UnfitClusterError(SinkError):
    """Change the brokers, or what the user may do: they cannot do what the sink needs."""


class WrongHistoryError(SinkError):
    """Say what is right: the commit topic and the checkpoint, or `txnVersion`, do not fit."""


class LostRowsError(SinkError):
    """Decide about rows that were lost: a batch was decided, and the log does not have it."""


class SupersededError(SinkError):
    """End: another run writes for the same sink."""


class FailedWriteError(SinkError):
    """Run the batch again: Kafka ended its transaction, or did not take a row for now."""

    is_retryable = True


class UnsendableRowError(SinkError):
    """Leave the row out, or name a topic for such rows: Kafka will never take it."""


class UnfinishedWriteError(SinkError):
    """Look before you repeat: parts of a write without a number may show."""


class UnavailableError(SinkError):
    """Start the query again: brokers gave no answer, and the next run finds out what was done."""

    is_retryable = True


class BrokenLogError(SinkError):
    """Look at the brokers: a partition does not have rows that it had acknowledged."""


class UnreadableRecordError(SinkError):
    """Use the release that wrote a record of the commit topic, or another commit topic."""


#: The classes of the kinds of failures, by the names that the virtual machine has for them.
KINDS: dict[str, type[EngineError]] = {
    kind.__name__.removesuffix("Error"): kind
    for kind in (
        InvalidInputError,
        StoreUnusableError,
        LocalRejectedError,
        ScratchFullError,
        DiskUnwritableError,
        ViewClosedError,
        IllegalCallError,
        CallInterruptedError,
        StoreMovedError,
        StoreUnreachableError,
        LookupTimeoutError,
        VersionGoneError,
        PositionBoundError,
        OffsetsDifferError,
        StaleTaskError,
        CheckpointDamagedError,
        LiveReadError,
        MissingLibraryError,
        RefusedSettingError,
        UnfitClusterError,
        WrongHistoryError,
        LostRowsError,
        SupersededError,
        FailedWriteError,
        UnsendableRowError,
        UnfinishedWriteError,
        UnavailableError,
        BrokenLogError,
        UnreadableRecordError,
    )
}


def no_plugin() -> LiveReadError:
    """Return the error for a read in a session that does not have Statemark's jar.

    Returns
    -------
    LiveReadError
        The error.
    """
    problem = "no query was read"
    return LiveReadError(
        problem,
        reason="the running Spark has no plugin of Statemark's on its class path",
        remedy="call statemark.use(spark), or start the session with statemark.configure(builder)",
    )
