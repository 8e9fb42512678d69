"""Lookups of many keys, page by page."""

from __future__ import annotations

import json

import pytest

import statemark
from statemark import VersionGoneError, _jvm

KEYS = list(range(10))


class Driver:
    """As the driver answers: three keys a page, as of the batch that is the newest or asked for."""

    def __init__(self, *, gone: int = 0) -> None:
        self.asked: list[list[int]] = []
        self.batch = 0
        self.gone = gone

    def lookup(self, *, options: dict[str, str], keys: str) -> tuple[str, list[object]]:
        asked = [key[0] for key in json.loads(keys)]
        self.asked.append(asked)
        as_of = options.get("asOf")
        if as_of is None:
            self.batch += 1
            as_of = str(self.batch)
        elif len(self.asked) > 2 and self.gone > 0:
            self.gone -= 1
            problem = "no rows"
            raise VersionGoneError(problem, reason="the batch is gone", remedy="again")
        return as_of, [(int(as_of), key) for key in asked[:3]]


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
