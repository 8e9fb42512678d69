"""What pyspark raises in a read becomes an error of three lines, where it is of the read."""

from __future__ import annotations

import traceback

import pytest

import statemark
from statemark import failures

pytest.importorskip("pyspark")

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
    # The original is there for who looks, and is not printed.
    assert said.__context__ is error
    assert type(error).__name__ not in "".join(traceback.format_exception(said))
    return said


def test_a_kind_is_told_by_the_message_where_there_is_nothing_else() -> None:
    gone = raised(PySparkException(IN_TASK))
    assert type(gone) is statemark.VersionGoneError
    assert gone.is_retryable
    assert gone.reason == "Version 1 is not kept. Read again."
    assert gone.remedy == "read again"
    wrong = raised(PySparkException(ON_DRIVER))
    assert type(wrong) is statemark.InvalidInputError
    assert wrong.reason == "No running query has the id 7; no query runs."
    assert not wrong.is_retryable


def test_spark_may_refuse_the_read_itself() -> None:
    refused = raised(PySparkException(OF_SPARK))
    assert type(refused) is statemark.LiveReadError
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
    assert raised(AnalysisException("no column x"), is_all_of_it=True).reason == "no column x"


def test_an_error_of_ours_is_its_own_failure() -> None:
    error = statemark.StoreMovedError("p", reason="r", remedy="m")
    assert statemark.error_of(error) is error
