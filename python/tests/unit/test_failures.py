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
REFUSED = """Format 'statemark' with queryId=7 cannot be read
  reason: No running query has the id 7; no query runs.
  remedy: Name one that runs."""
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
    assert wrong.remedy == "correct what the reason names"
    assert not wrong.is_retryable


class RefusedError(PySparkException):
    """As pyspark has a read that Spark's analysis refuses."""

    def __init__(self, kind: str, text: str = REFUSED) -> None:
        self._text = f"{text}\n\nJVM stacktrace:\norg.apache"
        super().__init__(self._text)
        self._kind = kind

    def getCondition(self) -> str:  # noqa: N802 - pyspark's name
        return f"STATEMARK.{self._kind}"

    def __str__(self) -> str:
        """As Spark Connect's have it: without the condition."""
        return self._text


def test_over_connect_a_read_that_is_refused_has_its_kind_and_remedy() -> None:
    wrong = raised(RefusedError("InvalidInput"))
    assert type(wrong) is statemark.InvalidInputError
    assert wrong.reason == "No running query has the id 7; no query runs."
    assert wrong.remedy == "Name one that runs."
    late = raised(RefusedError("PositionBound"))
    assert type(late) is statemark.PositionBoundError
    assert late.is_retryable
    told = statemark.error_of(RefusedError("InvalidInput"))
    assert type(told) is statemark.InvalidInputError
    assert told.remedy == "Name one that runs."


def test_over_connect_a_lookup_has_the_remedy() -> None:
    # How a query has ended is no kind of the read of it.
    why = "No running query; the query failed: statemark.spark.errors.VersionGoneException: 1."
    said = raised(RefusedError("LiveRead", f"{why}\n  remedy: Name a key."), is_all_of_it=True)
    assert type(said) is statemark.LiveReadError
    assert (said.reason, said.remedy) == (why, "Name a key.")


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


ABSENT = "Make sure the provider name is correct and the package is properly registered and"
PROVIDER = "statemark.spark.StatemarkStateStoreProvider"
IDS = "[id = 2b0e4c5a-6d1f-4c5e-9a41-0a4f2b5c8d11, runId = 7f6d0b52-8f3d-4d52-a1ad-5a3a1d0f4b10]"
#: As Spark 4.2 has it where the jar is not there, and what is not found then.
WITHOUT_JAR = {
    f"[DATA_SOURCE_NOT_FOUND] Failed to find the data source: statemark. {ABSENT} compatible with"
    " your Spark version. SQLSTATE: 42K02": "statemark",
    f"[DATA_SOURCE_NOT_FOUND] Failed to find the data source: statemark-kafka. {ABSENT} compatible"
    " with your Spark version. SQLSTATE: 42K02": "statemark-kafka",
    # `query.exception()`, and what `awaitTermination` raises.
    f"{PROVIDER}\n=== Streaming Query ===\nIdentifier: {IDS}": PROVIDER,
    f"[STREAM_FAILED] Query {IDS} terminated with exception: {PROVIDER} SQLSTATE: XXKST": PROVIDER,
    "Job aborted due to stage failure: Task 0 in stage 1.0 failed 4 times, most recent failure:"
    f" Lost task 0.3 in stage 1.0 (TID 9) (h executor 1): java.lang.ClassNotFoundException:"
    f" {PROVIDER}\n\tat java.base/java.net.URLClassLoader.findClass": PROVIDER,
}


@pytest.mark.parametrize("text", WITHOUT_JAR)
def test_a_spark_without_the_jar_is_told_by_what_it_does_not_find(text: str) -> None:
    error = statemark.error_of(PySparkException(text))
    assert type(error) is statemark.JarNotFoundError
    assert error.problem == "Spark does not have Statemark's jar"
    assert error.reason == f"{WITHOUT_JAR[text]} was not found, on the driver or on an executor"
    assert "statemark.use(spark)" in error.remedy
    assert "--jars $(statemark jar)" in error.remedy
    assert statemark.error_of(error) is error


@pytest.mark.parametrize(
    "text",
    [
        f"[DATA_SOURCE_NOT_FOUND] Failed to find the data source: kafka. {ABSENT}",
        f"[DATA_SOURCE_NOT_FOUND] Failed to find the data source: statemark2. {ABSENT}",
        "java.lang.ClassNotFoundException: org.statemark.Other",
        f"{PROVIDER}: it has failed",
        "statemark.live was called",
    ],
)
def test_what_others_do_not_find_is_theirs(text: str) -> None:
    assert statemark.error_of(PySparkException(text)) is None


def trace(kind: str, problem: str = "A write failed") -> str:
    """As Python has the traceback of an error of this package."""
    frames = (
        'Traceback (most recent call last):\n  File "job.py", line 3, in write\n    raise known\n'
    )
    return (
        f"{frames}{kind}: {problem}\n  reason: 'kafka.acks' is refused\n  remedy: Leave it out.\n"
    )


INSIDE = "[FOREACH_BATCH_USER_FUNCTION_ERROR] Reason: An exception was raised. Return Message: "
REFUSED_SETTING = trace("statemark.errors.RefusedSettingError")
HANDLING = "\nDuring handling of the above exception, another exception occurred:\n\n"


@pytest.mark.parametrize("before", ["", trace("statemark.errors.FailedWriteError") + HANDLING])
def test_an_error_that_was_raised_inside_a_query_is_known_by_its_traceback(before: str) -> None:
    text = f"{INSIDE}{before}{REFUSED_SETTING} SQLSTATE: 39000"
    error = statemark.error_of(PySparkException(text))
    assert type(error) is statemark.RefusedSettingError
    assert error.problem == "A write failed"
    assert (error.reason, error.remedy) == ("'kafka.acks' is refused", "Leave it out.")


@pytest.mark.parametrize(
    "text",
    [trace(f"statemark.errors.{other}") for other in ("KINDS", "ClassVar", "Any", "NoError")]
    + [trace("other.RefusedSettingError"), f"{REFUSED_SETTING}{HANDLING}{trace('KeyError')}"],
)
def test_what_else_was_raised_inside_a_query_is_not(text: str) -> None:
    assert statemark.error_of(PySparkException(INSIDE + text)) is None


def test_a_write_fails_with_an_error_of_its_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = of_kind(statemark.LostRowsError, monkeypatch)
    with pytest.raises(statemark.LostRowsError) as caught, failures.of_write():
        raise raw
    assert (caught.value.reason, caught.value.remedy) == ("It says why.", "Do this.")
    stopped = of_kind(statemark.CallInterruptedError, monkeypatch)
    with pytest.raises(PySparkException) as interrupt, failures.of_write():
        raise stopped
    assert interrupt.value is stopped
    monkeypatch.undo()
    with pytest.raises(ZeroDivisionError), failures.of_write():
        raise ZeroDivisionError


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
    patch.setattr(_jvm, "told_of", lambda _: _jvm.Told(kind, "It says why.", "Do this."))
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
    assert (caught.value.reason, caught.value.remedy) == ("It says why.", "Do this.")
    assert caught.value.__cause__ is None


class OfTheDeadError(Exception):
    """As py4j's, whose text is asked of the virtual machine."""

    _origin = object()

    def __str__(self) -> str:
        raise Py4JNetworkError

    def getCondition(self) -> str:  # noqa: N802 - pyspark's name
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
        assert _jvm.told_of(error) is None
        assert statemark.error_of(error) is None
        with pytest.raises(type(error)) as caught, failures.of_read("q", is_all_of_it=True):
            raise error
        assert caught.value is error


def test_an_error_of_ours_is_its_own_failure() -> None:
    error = statemark.StoreMovedError("p", reason="r", remedy="m")
    assert statemark.error_of(error) is error
