"""Transactional state for Spark Structured Streaming, controlled from Python.

What people use, in the order in which they need it::

    configure        set up a session that is to be built
    conf, jar_path   the same for spark-submit, as words; where the jar lies
    use              set up a session that runs already, in a `with` block or for good
    MetricsListener  what queries did, batch by batch; `report` says what is odd
    live             the state of a running query as a table
    get, get_many    the rows of one key, or of several, of a running query
    operators        which operators of a query have state, and of what columns
    state            one of them, for all of these reads
    position         how far a running query has read its sources
    committed_offset  the same, as one of its stores holds it beside its rows
    plots            pictures of what a listener has seen
    checkpoint       the commands on a query's checkpoint: inspect, verify, switch, repartition
    doctor           what is odd on this machine, in settings, and with a checkpoint
    kafka_source     rows of topics, of committed transactions alone
    kafka_sink       a query's exactly-once output to Kafka
    kafka_batch      the same in `foreachBatch`, and for a batch query
    wait_for         waits until such output covers a position of the query's input
    latest           the records that compaction by KIP-280 keeps of a topic
    error_of         what Statemark's failure says, of any exception that Spark throws

The command line has the rest: ``statemark --help``, or ``python -m statemark --help``.

Examples
--------
>>> import statemark
>>> from pyspark.sql import SparkSession
>>> builder = statemark.configure(SparkSession.builder, local_dir="/var/lib/statemark")
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from statemark import plots
from statemark._version import __version__
from statemark.answers import Answer
from statemark.checkpoint_commands import Checkpoint, checkpoint
from statemark.diagnosis import Diagnosis, doctor
from statemark.doctor_findings import Finding
from statemark.errors import (
    BrokenLogError,
    CallInterruptedError,
    CheckpointDamagedError,
    ConnectError,
    DiskUnwritableError,
    EngineError,
    FailedWriteError,
    IllegalCallError,
    InvalidInputError,
    JarNotFoundError,
    LiveReadError,
    LocalRejectedError,
    LookupTimeoutError,
    LostRowsError,
    MissingDependencyError,
    MissingLibraryError,
    OffsetsDifferError,
    PositionBoundError,
    RefusedSettingError,
    ScratchFullError,
    SessionRunningError,
    SettingsError,
    SinkError,
    SparkVersionError,
    StaleTaskError,
    StatemarkError,
    StoreMovedError,
    StoreUnreachableError,
    StoreUnusableError,
    SupersededError,
    UnavailableError,
    UnfinishedWriteError,
    UnfitClusterError,
    UnreadableRecordError,
    UnsendableRowError,
    VersionGoneError,
    ViewClosedError,
    WrongHistoryError,
)
from statemark.failures import error_of
from statemark.handle import State, state
from statemark.isolation import IsolationLevel
from statemark.jars import jar_path
from statemark.kafka import kafka_batch, kafka_sink, kafka_source
from statemark.lookup import get, get_many
from statemark.offsets import committed_offset
from statemark.operator_metrics import OperatorMetrics
from statemark.reads import Position, live, position
from statemark.running import Lack, Usage, use
from statemark.session import conf, configure
from statemark.stateful import Description, Operator, operators
from statemark.waits import wait_for
from statemark.winners import latest

if TYPE_CHECKING:
    from statemark.metrics import MetricsListener

__all__ = [
    "Answer",
    "BrokenLogError",
    "CallInterruptedError",
    "Checkpoint",
    "CheckpointDamagedError",
    "ConnectError",
    "Description",
    "Diagnosis",
    "DiskUnwritableError",
    "EngineError",
    "FailedWriteError",
    "Finding",
    "IllegalCallError",
    "InvalidInputError",
    "IsolationLevel",
    "JarNotFoundError",
    "Lack",
    "LiveReadError",
    "LocalRejectedError",
    "LookupTimeoutError",
    "LostRowsError",
    "MetricsListener",
    "MissingDependencyError",
    "MissingLibraryError",
    "OffsetsDifferError",
    "Operator",
    "OperatorMetrics",
    "Position",
    "PositionBoundError",
    "RefusedSettingError",
    "ScratchFullError",
    "SessionRunningError",
    "SettingsError",
    "SinkError",
    "SparkVersionError",
    "StaleTaskError",
    "State",
    "StatemarkError",
    "StoreMovedError",
    "StoreUnreachableError",
    "StoreUnusableError",
    "SupersededError",
    "UnavailableError",
    "UnfinishedWriteError",
    "UnfitClusterError",
    "UnreadableRecordError",
    "UnsendableRowError",
    "Usage",
    "VersionGoneError",
    "ViewClosedError",
    "WrongHistoryError",
    "__version__",
    "checkpoint",
    "committed_offset",
    "conf",
    "configure",
    "doctor",
    "error_of",
    "get",
    "get_many",
    "jar_path",
    "kafka_batch",
    "kafka_sink",
    "kafka_source",
    "latest",
    "live",
    "operators",
    "plots",
    "position",
    "state",
    "use",
    "wait_for",
]


def _has_pyspark() -> bool:
    try:
        return find_spec("pyspark") is not None
    except ValueError:  # a module that stands in for it has no spec
        return True


# Spark's listener is the base class of ours, so it needs pyspark, which the rest does not.
if not _has_pyspark():
    __all__.remove("MetricsListener")


def __getattr__(name: str) -> object:
    if name != "MetricsListener":
        message = f"module 'statemark' has no attribute {name!r}"
        raise AttributeError(message)
    from statemark.metrics import MetricsListener

    return MetricsListener


def __dir__() -> list[str]:
    return sorted(__all__)
