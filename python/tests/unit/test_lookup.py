"""Lookups of many keys, page by page."""

from __future__ import annotations

import json
import warnings

import pytest

import statemark
from statemark import VersionGoneError, _jvm, lookup_keys

KEYS = list(range(10))


class Driver:
    """As the driver answers: three keys a page, as of the batch that is the newest or asked for."""

    def __init__(self, *, gone: int = 0) -> None:
        self.asked: list[list[int]] = []
        self.batch = 0
        self.gone = gone

    def lookup(self, *, options: dict[str, str], keys: str) -> tuple[str, list[object], list[str]]:
        asked = [
            key[0] if isinstance(key, list) else next(iter(key.values()))
            for key in json.loads(keys)
        ]
        self.asked.append(asked)
        as_of = options.get("asOf")
        if as_of is None:
            self.batch += 1
            as_of = str(self.batch)
        elif len(self.asked) > 2 and self.gone > 0:
            self.gone -= 1
            problem = "no rows"
            raise VersionGoneError(problem, reason="the batch is gone", remedy="again")
        return as_of, [(int(as_of), key) for key in asked[:3]], ["key"]


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Driver:
    answers = Driver(gone=getattr(request, "param", 0))
    monkeypatch.setattr(_jvm, "is_classic", lambda: True)
    monkeypatch.setattr(_jvm, "lookup", answers.lookup)
    return answers


def test_pages_are_of_one_batch_and_ask_for_what_is_left(driver: Driver) -> None:
    assert statemark.get_many("q", KEYS) == [(1, key) for key in KEYS]
    assert [len(asked) for asked in driver.asked] == [10, 6, 4, 1]


@pytest.mark.parametrize("driver", [2], indirect=True)
def test_where_the_batch_is_gone_all_pages_are_read_of_another(driver: Driver) -> None:
    assert statemark.get_many("q", KEYS) == [(3, key) for key in KEYS]


@pytest.mark.parametrize("driver", [99], indirect=True)
def test_a_batch_that_is_gone_each_time_is_told(driver: Driver) -> None:
    with pytest.raises(VersionGoneError):
        statemark.get_many("q", KEYS)
    assert driver.batch == 5


def test_another_name_than_the_users_own_is_worth_a_warning_in_the_users_line(
    driver: Driver,
) -> None:
    with pytest.warns(UserWarning, match="a key names 'kye', and the only column") as told:
        assert statemark.get("q", {"kye": 7}) == (1, 7)
    assert [one.filename for one in told] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert statemark.get_many("q", [7, {"key": 8}]) == [(2, 7), (2, 8)]


@pytest.mark.parametrize(
    "column", ["_groupingexpression", "_groupingexpression#2", "value", "field0", "(key % 10)"]
)
def test_a_name_that_spark_makes_up_is_worth_none(column: str) -> None:
    assert lookup_keys.misnamed([{"kye": 7}], [column]) is None


def test_a_key_of_several_columns_is_the_drivers_to_refuse() -> None:
    assert lookup_keys.misnamed([{"a": 7, "c": 8}], ["a", "b"]) is None
