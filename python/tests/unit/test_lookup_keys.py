"""Keys as the driver reads them."""

from __future__ import annotations

import datetime as dt
import json
import time
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from statemark import LiveReadError
from statemark.lookup_keys import key_of, keys_of, to_json

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A process in a zone that has summer time."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "Europe/Berlin")
        time.tzset()
        yield
    time.tzset()


def sent(value: object) -> Any:
    return json.loads(to_json([key_of({"a": value})]))[0]["a"]


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (float("nan"), {"float": "nan"}),
        (float("-inf"), {"float": "-inf"}),
        (Decimal("Infinity"), {"float": "inf"}),
        (Decimal("sNaN"), {"float": "nan"}),
        (Decimal("1.50"), "1.50"),
        (bytearray(b"\x00"), {"base64": "AA=="}),
        (memoryview(b"\x00"), {"base64": "AA=="}),
        ({"b": (1, None)}, {"b": [1, None]}),
        (dt.timedelta(days=-1, microseconds=1), {"micros": -86399999999}),
        (dt.date(2024, 2, 29), "2024-02-29"),
        (dt.time(1, 2), "01:02:00"),
    ],
    ids=repr,
)
def test_what_json_has_no_value_for(value: object, wanted: object) -> None:
    assert sent(value) == wanted


@pytest.mark.usefixtures("berlin")
def test_a_time_that_no_clock_in_the_zone_shows_stays_what_it_is() -> None:
    wall = dt.datetime(2024, 3, 31, 2, 30)
    micros = int(wall.replace(tzinfo=dt.timezone.utc).timestamp()) * 10**6
    assert sent(wall)["wall"] == micros
    later = wall.replace(hour=3, minute=0)
    assert sent(later)["instant"] == micros - 90 * 60 * 10**6
    zoned = wall.replace(tzinfo=dt.timezone(dt.timedelta(hours=-3, seconds=5)))
    assert sent(zoned) == {"instant": micros + (3 * 3600 - 5) * 10**6, "wall": micros}


@pytest.mark.parametrize("zone", ["America/New_York", "UTC", "Pacific/Kiritimati"])
def test_the_first_and_the_last_time_that_there_is(
    zone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", zone)
        time.tzset()
        for moment in (dt.datetime.min, dt.datetime.max):
            wall = (moment - dt.datetime(1970, 1, 1)) // dt.timedelta(microseconds=1)
            times = sent(moment)
            assert times["wall"] == wall
            assert abs(times["instant"] - wall) <= 15 * 3600 * 10**6
            assert times["instant"] % 10**6 == moment.microsecond
    time.tzset()


@pytest.mark.usefixtures("berlin")
def test_times_of_pandas_are_times() -> None:
    pd = pytest.importorskip("pandas")
    for text in ("2024-03-31 02:30", "2024-10-27 02:30:00.000001", "1969-12-31 23:59"):
        assert sent(pd.Timestamp(text)) == sent(dt.datetime.fromisoformat(text))
    zoned = dt.datetime(2024, 3, 31, tzinfo=dt.timezone(dt.timedelta(hours=-3)))
    assert sent(pd.Timestamp(zoned)) == sent(zoned)
    assert sent(pd.Timedelta(2, "s")) == {"micros": 2_000_000}
    assert sent([pd.NaT, None]) == [None, None]


def test_scalars_of_numpy_are_what_they_hold() -> None:
    np = pytest.importorskip("numpy")
    assert sent(np.int8(3)) == 3
    assert sent(np.float32("inf")) == {"float": "inf"}
    assert sent(np.float64("nan")) == {"float": "nan"}
    assert sent(np.array([1.5, 2.5])) == [1.5, 2.5]
    assert sent(np.datetime64(5000, "ns")) == {"instant": 5, "wall": 5}
    assert sent(np.timedelta64(2, "s")) == {"micros": 2_000_000}
    assert sent(np.datetime64("NaT")) is None


def test_a_row_is_a_struct() -> None:
    sql = pytest.importorskip("pyspark.sql")
    row = sql.Row(b=sql.Row(x=1, y=None))
    assert sent(row) == {"b": {"x": 1, "y": None}}
    assert key_of(row) == {"b": {"x": 1, "y": None}}


@pytest.mark.parametrize("value", [object(), {1, 2}, 1j], ids=["object", "set", "complex"])
def test_what_is_no_part_of_a_key_is_refused(value: object) -> None:
    with pytest.raises(LiveReadError, match="cannot be part of a key"):
        key_of({"a": value})


def test_a_number_that_python_has_no_type_for_is_refused() -> None:
    np = pytest.importorskip("numpy")
    with pytest.raises(LiveReadError, match="cannot be part of a key"):
        key_of({"a": np.longdouble(1)})


@pytest.mark.parametrize("value", [3, None, "a", [1]], ids=repr)
def test_a_value_alone_is_the_only_column_of_a_key(value: object) -> None:
    assert json.loads(to_json([key_of(value)])) == [[value]]


def test_a_time_alone_is_one_value_and_no_mapping() -> None:
    moment = dt.datetime(2024, 3, 31, tzinfo=dt.timezone.utc)
    assert json.loads(to_json([key_of(moment)])) == [[sent(moment)]]


def test_several_keys_are_of_either_form() -> None:
    assert keys_of(iter([7, {"key": 8}])) == [[7], {"key": 8}]


@pytest.mark.parametrize(
    "keys", [7, "k1", b"k1", bytearray(b"k1"), memoryview(b"k1"), {"key": 7}, None], ids=repr
)
def test_one_key_is_no_list_of_keys(keys: object) -> None:
    with pytest.raises(LiveReadError, match="is no list of keys\n  reason: it is of type"):
        keys_of(keys)
