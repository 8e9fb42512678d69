"""How a user names a query, and how long a read waits."""

from __future__ import annotations

import uuid
from types import SimpleNamespace
from typing import Any

import pytest

import statemark
from statemark import LiveReadError, SettingsError, queries
from statemark.queries import called, duration, option_of, shown

ID = "8a8c2542-95d5-4aec-80e5-dda372b21edd"


class StreamingQuery:
    """As pyspark's, of which there are two."""

    __module__ = "pyspark.sql.streaming.query"
    id = ID
    name: str | None = None


class Renamed(StreamingQuery):
    """As somebody's who wraps one."""


@pytest.mark.parametrize("query", [ID, ID.upper(), uuid.UUID(ID), StreamingQuery(), Renamed()])
def test_a_query_is_named_by_its_id(query: Any) -> None:
    assert option_of(query) == {"queryId": ID}
    assert shown(option_of(query)) == ID


def test_a_query_has_a_name() -> None:
    assert option_of("counts") == {"queryName": "counts"}
    assert shown(option_of("counts")) == "'counts'"


def test_people_call_a_query_by_its_name() -> None:
    named = Renamed()
    named.name = "counts"
    assert [called(one) for one in (named, "counts")] == ["'counts'"] * 2
    assert [called(one) for one in (StreamingQuery(), ID)] == [ID] * 2
    assert repr(statemark.state(named)).startswith("State('counts', ")
    assert option_of(named) == {"queryId": ID}


@pytest.mark.parametrize("query", [None, 7, object(), [ID]], ids=repr)
def test_what_is_no_query_is_refused(query: Any) -> None:
    with pytest.raises(SettingsError, match=f"^{type(query).__name__} given in place"):
        option_of(query)


@pytest.mark.parametrize("bound", ["9", ("9",), 9], ids=repr)
def test_what_is_no_position_is_refused(bound: Any) -> None:
    with pytest.raises(SettingsError, match=f"it is a {type(bound).__name__}, and no Position"):
        statemark.live("counts", position_bound=bound)
    with pytest.raises(SettingsError, match="pass what statemark.position"):
        statemark.get("counts", 7, position_bound=bound)


def test_a_session_that_is_stopped_is_refused() -> None:
    stopped: Any = SimpleNamespace(read=None, conf=None, _sc=SimpleNamespace(_jsc=None))
    with pytest.raises(SettingsError, match="cannot use a session that is stopped"):
        statemark.use(stopped)


@pytest.mark.parametrize(
    ("timeout", "wanted"),
    [(0, "0ms"), (1.5, "1500ms"), ("10s", "10s"), (" 2MIN ", "2min"), ("5ms", "5ms")],
)
def test_a_time_is_seconds_or_has_a_unit(timeout: object, wanted: str) -> None:
    assert duration(timeout) == wanted


@pytest.mark.parametrize(
    ("timeout", "reason"),
    [
        (-1, "negative"),
        (float("nan"), "no number"),
        (float("inf"), "no number"),
        (True, "a bool is no time"),
        ([1], "a list is no time"),
        ("10", "has a unit"),
        ("10 x", "a whole number and an optional unit"),
        ("soon", "a whole number and an optional unit"),
        ("3w", "not a unit of time"),
    ],
)
def test_a_bad_time_is_refused(timeout: object, reason: str) -> None:
    with pytest.raises(SettingsError, match=reason) as error:
        duration(timeout)
    assert repr(timeout) in error.value.problem
    assert "'10s'" in error.value.remedy


def test_a_process_without_a_session_is_told_to_start_one() -> None:
    pytest.importorskip("pyspark")
    with pytest.raises(LiveReadError, match="no session of Spark's is active"):
        queries.session()
