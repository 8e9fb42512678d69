"""The judge of `make demo-kafka` sees each kind of mistake, and a run without any."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import pytest
from support.session import ROOT
from support.topics import Row

if TYPE_CHECKING:
    from pathlib import Path

sys.path.append(str(ROOT / "examples/exactly_once"))

from judge import Written, ends_of, judge, wanted, written

#: Two batches: the second has one key again, with a higher total.
WANTED = [{"a": (1, 5), "b": (1, 0)}, {"a": (2, 7)}]
RIGHT = [
    Written(0, "a", (1, 5), run=1, partition=0, attempt=10),
    Written(0, "b", (1, 0), run=1, partition=1, attempt=11),
    Written(1, "a", (2, 7), run=2, partition=0, attempt=20),
]


def changed(row: Written, **facts: int) -> Written:
    return Written(**{**vars(row), **facts})


def test_each_row_once() -> None:
    verdict = judge(RIGHT, WANTED)
    assert verdict.is_right
    assert (verdict.rows, verdict.wanted, verdict.chart()) == (3, 3, "..")


@pytest.mark.parametrize(
    ("found", "chart"),
    [
        # By one attempt: what a producer does that is not idempotent.
        ([*RIGHT, RIGHT[0]], "+."),
        ([*RIGHT, changed(RIGHT[0], attempt=12)], "x."),
        # Another key by another run: nothing is there twice, and yet the batch is of two tries.
        ([changed(RIGHT[0], run=3), *RIGHT[1:]], "x."),
        (RIGHT[1:], "!."),
        ([*RIGHT[:2], Written(1, "a", (3, 7), run=2, partition=0, attempt=20)], ".!"),
        ([*RIGHT, Written(2, "a", (3, 9), run=2, partition=0, attempt=21)], ".."),
    ],
    ids=["twice", "attempts", "runs", "lost", "wrong", "unknown"],
)
def test_mistakes(found: list[Written], chart: str) -> None:
    verdict = judge(found, WANTED)
    assert not verdict.is_right
    assert verdict.chart() == chart


def flight(partition: int, offset: int, delay: int | None) -> Row:
    names = {"carrier": "UA", "flight": partition, "origin": "EWR", "dest": "IAH"}
    value = json.dumps({**names, "delay_min": delay}).encode()
    return Row(partition, offset, None, value, (), 0)


def test_what_must_be_there(tmp_path: Path) -> None:
    """Offsets of the input may have gaps, and a cancelled flight counts without a delay."""
    rows = [flight(0, 0, 5), flight(0, 3, None), flight(1, 0, 2), flight(0, 4, 1)]
    offsets = tmp_path / "offsets"
    offsets.mkdir()
    for batch, ends in enumerate([{"0": 4, "1": 0}, {"0": 5, "1": 1}]):
        log = ["v1", "{}", json.dumps({"flights": ends})]
        (offsets / str(batch)).write_text("\n".join(log))
    assert wanted(rows, ends_of(tmp_path)) == [
        {"UA 0 EWR IAH": (2, 5)},
        {"UA 0 EWR IAH": (3, 6), "UA 1 EWR IAH": (1, 2)},
    ]


def test_who_wrote_a_row() -> None:
    header = ("written-by", b"7 2 3 41")
    row = Row(0, 9, b"UA 1", b'{"flights": 2, "delay_min": 5}', (header,), 0)
    assert list(written([row], "written-by")) == [
        Written(7, "UA 1", (2, 5), run=2, partition=3, attempt=41)
    ]
