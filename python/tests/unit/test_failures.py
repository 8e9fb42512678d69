"""What pyspark raises in a read becomes an error of three lines, where it is of the read."""

from __future__ import annotations

import traceback

import pytest

import statemark
from statemark import _jvm, failures
from statemark.errors import KINDS

pytest.importorskip("pyspark")

from py4j.protocol import Py4JNetworkError
from pyspark.errors import AnalysisException, PySparkException

# As a Spark Connect client gets them: text, and no exception of the virtual machine's.
IN_TASK = """Job aborted due to stage failure: Task 0 failed 1 times, most recent failure:
Lost task 0.0: statemark.spark.errors.VersionGoneException: Version 1 is not kept. Read again.
\tat statemark.spark.reads.Reads.find(Reads.scala:1)
Driver stacktrace:"""
ON_DRIVER = "(statemark.common.InvalidInputException) No running query has the id 7; no query runs."
OF_SPARK = """[STDS_FAILED_TO_READ_STATE_SCHEMA] Failed to read the state schema.
Rerun the query.

JVM stacktrace:
org.apache.spark"""


def raised(error: Exception, *, is_all_of_it: bool = False) -> statemark.LiveReadError:
    with (
        pytest.raises(statemark.LiveReadError) as caught,
        failures.of_read("q", is_all_of_it=is_all_of_it),
    ):
        raise error
    said = caught.value
    assert said.problem == "query q was not read"
    assert len(str(said).splitlines()) == 3
    # The original is there for who looks, and is printed only where nothing else is known.
    assert said.__context__ is error
    printed = "".join(traceback.format_exception(said))
    assert (type(error).__name__ in printed) is (said.__cause__ is not None)
    return said


def test_a_kind_is_told_by_the_message_where_there_is_nothing_else() -> None:
    gone = raised(PySparkException(IN_TASK))
    assert type(gone) is statemark.VersionGoneError
    assert gone.__cause__ is None
    assert gone.is_retryable
    assert gone.reason == "Version 1 is not kept. Read again."
    assert gone.remedy == "read again"
    wrong = raised(PySparkException(ON_DRIVER))
    assert type(wrong) is statemark.InvalidInputError
    assert wrong.reason == "No running query has the id 7; no query runs."
    assert "spark.streams.active" in wrong.remedy
    assert "statemark.operators(query)" in wrong.remedy
    assert not wrong.is_retryable


def test_spark_may_refuse_the_read_itself() -> None:
    refused = raised(PySparkException(OF_SPARK))
    assert type(refused) is statemark.LiveReadError
    assert refused.__cause__ is None
    said = "[STDS_FAILED_TO_READ_STATE_SCHEMA] Failed to read the state schema. Rerun the query."
    assert refused.reason == said


def test_a_session_without_the_plugin_is_told_how_to_get_it() -> None:
    absent = "[DATA_SOURCE_NOT_FOUND] Failed to find the data source: statemark. Make sure."
    with (
        pytest.raises(statemark.LiveReadError, match=r"configure\(builder\)"),
        failures.of_read("q", is_all_of_it=True),
    ):
        raise PySparkException(absent)
    # What a user's own action lacks is the user's.
    with pytest.raises(PySparkException), failures.of_read("q", is_all_of_it=False):
        raise PySparkException(absent)


def test_what_has_nothing_to_do_with_the_read_is_left_alone() -> None:
    for error in (AnalysisException("no column x"), ZeroDivisionError(), statemark.SinkError):
        with pytest.raises(Exception) as caught, failures.of_read("q", is_all_of_it=False):
            raise error if isinstance(error, Exception) else error("p", reason="r", remedy="m")
        assert not isinstance(caught.value, statemark.LiveReadError)
    unknown = AnalysisException("no column x")
    said = raised(unknown, is_all_of_it=True)
    assert (said.reason, said.__cause__) == ("no column x", unknown)


def of_kind(kind: type[statemark.EngineError], patch: pytest.MonkeyPatch) -> PySparkException:
    """An exception of a classic session behind which the virtual machine sees a kind."""
    patch.setattr(_jvm, "kind_of", lambda _: kind)
    patch.setattr(_jvm, "message_of", lambda _: "It says why.")
    return PySparkException("as Spark has it")


@pytest.mark.parametrize(
    "kind", [kind for kind in KINDS.values() if issubclass(kind, statemark.SinkError)]
)
@pytest.mark.parametrize("is_all_of_it", [True, False])
def test_a_failure_of_a_sink_is_none_of_the_read(
    monkeypatch: pytest.MonkeyPatch, kind: type[statemark.EngineError], is_all_of_it: bool
) -> None:
    error = of_kind(kind, monkeypatch)
    with (
        pytest.raises(PySparkException) as caught,
        failures.of_read("q", is_all_of_it=is_all_of_it),
    ):
        raise error
    assert caught.value is error
    told = statemark.error_of(error)
    assert type(told) is kind


def test_over_connect_a_failure_of_a_sink_is_none_of_the_read() -> None:
    error = PySparkException("(statemark.kafka.errors.UnfinishedWriteException) Parts may show.")
    with pytest.raises(PySparkException) as caught, failures.of_read("q", is_all_of_it=False):
        raise error
    assert caught.value is error


@pytest.mark.parametrize(
    "kind", [kind for kind in KINDS.values() if not issubclass(kind, statemark.SinkError)]
)
def test_every_other_kind_keeps_its_class(
    monkeypatch: pytest.MonkeyPatch, kind: type[statemark.EngineError]
) -> None:
    error = of_kind(kind, monkeypatch)
    with pytest.raises(statemark.EngineError) as caught, failures.of_read("q", is_all_of_it=False):
        raise error
    assert type(caught.value) is kind
    assert caught.value.is_retryable == kind.is_retryable
    assert caught.value.reason == "It says why."
    assert caught.value.__cause__ is None


class OfTheDeadError(Exception):
    """As py4j's, whose text is asked of the virtual machine."""

    _origin = object()

    def __str__(self) -> str:
        raise Py4JNetworkError


@pytest.mark.parametrize("raises", [Py4JNetworkError, ConnectionRefusedError])
def test_a_virtual_machine_that_is_gone_says_nothing(
    monkeypatch: pytest.MonkeyPatch, raises: type[Exception]
) -> None:
    def gone(_: str) -> None:
        raise raises

    monkeypatch.setattr(_jvm, "has_context", lambda: True)
    monkeypatch.setattr(_jvm, "_plugins", gone)
    for error in (OfTheDeadError(), ZeroDivisionError()):
        assert _jvm.kind_of(error) is None
        assert _jvm.message_of(error) is None
        assert statemark.error_of(error) is None
        with pytest.raises(type(error)) as caught, failures.of_read("q", is_all_of_it=True):
            raise error
        assert caught.value is error


def test_an_error_of_ours_is_its_own_failure() -> None:
    error = statemark.StoreMovedError("p", reason="r", remedy="m")
    assert statemark.error_of(error) is error
