"""The listener's page of text: what it finds odd, and what it leaves alone."""

from __future__ import annotations

import dataclasses
import pickle
import re
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from statemark import OperatorMetrics, report
from statemark.operator_metrics import sink_columns

#: A batch with nothing odd.
CALM: dict[str, Any] = {
    field.name: 0 for field in dataclasses.fields(OperatorMetrics) if "sink_" not in field.name
} | {
    "query_id": "q",
    "run_id": "r",
    "name": "clicks",
    "timestamp": datetime(2026, 3, 1, tzinfo=timezone.utc),
    "operator": "stateStoreSave",
    "batch_duration_ms": 1000,
    "rows_total": 12345,
    "memory_used_bytes": 3 << 20,
    "commit_count": 4,
    "commit_latency_avg_ms": 50.0,
    "commit_latency_max_ms": 60,
    "serialize_latency_ms": 40,
    "changelog_latency_ms": 160,
    "loads_memory": 4,
}


def rows(count: int, **of_last: Any) -> list[OperatorMetrics]:
    """Batches with nothing odd but what the last one has."""
    found = [OperatorMetrics(**CALM | {"batch_id": i}) for i in range(count)]
    return [*found[:-1], dataclasses.replace(found[-1], **of_last)]


def test_says_that_nothing_is_odd() -> None:
    assert report.findings(rows(5)) == []
    assert report.text(rows(5)).splitlines() == [
        "query clicks (q)",
        "  operator 0, stateStoreSave: batches 0 to 4, 12,345 rows in state, 3.0 MiB of memory",
        "    batch: 1,000 ms in the mean, 1,000 ms the slowest; 1,000 ms the first of a run",
        "    commit of a store: 50.0 ms in the mean (changelog 80%, serialize 20%)",
        "    nothing odd",
    ]


def test_the_first_batch_of_a_run_stands_apart() -> None:
    kept = rows(6)
    kept[0] = dataclasses.replace(kept[0], batch_duration_ms=9000)
    kept[3] = dataclasses.replace(kept[3], batch_duration_ms=7000)
    kept[3:] = [dataclasses.replace(row, run_id="s") for row in kept[3:]]
    usual = "    batch: 1,000 ms in the mean, 1,000 ms the slowest"
    assert f"{usual}; 9,000, 7,000 ms the first of a run\n" in report.text(kept)
    # The oldest that is kept need not be the first of its run.
    assert f"{usual}; 7,000 ms the first of a run\n" in report.text(kept[1:])
    assert f"{usual}\n" in report.text(kept[1:3])
    assert "    batch: 9,000 ms the first of a run\n" in report.text(kept[:1])


def test_says_where_a_restart_found_its_stores() -> None:
    restarted = rows(3)
    restarted[0] = dataclasses.replace(restarted[0], loads_memory=0, loads_local=3, reloads=3)
    assert "    stores loaded: 3 from the local directory\n    nothing odd" in report.text(
        restarted
    )
    restarted[0] = dataclasses.replace(restarted[0], loads_local=1, loads_checkpoint=2)
    assert "1 from the local directory, 2 from the checkpoint\n" in report.text(restarted)


def test_says_that_nothing_was_reported() -> None:
    assert "No batch" in report.text([])


@pytest.mark.parametrize(
    ("of_last", "what", "remedy"),
    [
        ({"spills": 2, "spilled_bytes": 3 << 20}, "2 times, 3.0 MiB", "maxUncommittedBytes"),
        ({"rollbacks": 3}, "3 transactions were rolled back", "Spark's log"),
        ({"rewinds": 1}, "again in 1 of 3 batches", "another attempt"),
        ({"reloads": 2}, "2 stores were loaded again in 1 of 2", "spark.locality.wait"),
        ({"confirm_latency_ms": 1500}, "took 1,500 ms, more than the commits", "slow local disk"),
    ],
)  # fmt: skip
def test_finds_what_is_odd(of_last: dict[str, Any], what: str, remedy: str) -> None:
    assert report.findings(rows(3)) == []
    finding = next(f for f in report.findings(rows(3, **of_last)) if what in f.what)
    assert remedy in finding.remedy
    assert (Path(__file__).parents[3] / "docs" / finding.page).is_file()
    page = report.text(rows(3, **of_last))
    assert f"    ! {finding.what}\n      {finding.remedy} (docs/{finding.page})" in page
    assert "nothing odd" not in page


def test_says_that_keys_are_skewed_where_more_than_one_commit_is_slow() -> None:
    def slow(batches: int, of: int) -> list[report.Finding]:
        calm = rows(of)
        odd = [dataclasses.replace(row, commit_latency_max_ms=900) for row in calm[:batches]]
        return report.findings([*odd, *calm[batches:]])

    assert slow(2, of=20) == []
    (finding,) = slow(3, of=20)
    assert finding.what.startswith("in 3 of 20 batches one commit took far longer than the mean:")
    assert "900 ms in batch 0, where the mean is 50 ms" in finding.what
    assert "keys are skewed" in finding.remedy
    # Now and then is not often.
    assert slow(3, of=40) == []


def test_names_what_makes_commits_slow() -> None:
    slow = {"commit_latency_max_ms": 600, "commit_latency_avg_ms": 500.0}
    for part, remedy in (
        ("serialize", "many keys"),
        ("changelog", "file system"),
        ("snapshot", "min"),
    ):
        odd = rows(1, **slow, **{f"{part}_latency_ms": 1900})
        (finding,) = report.findings(odd)
        assert finding.what == "the slowest commits take 60% of the batches"
        assert remedy in finding.remedy


def test_a_batch_that_is_always_computed_twice_has_two_actions() -> None:
    (finding,) = report.findings([*rows(1, rewinds=1), *rows(2, rewinds=1)])
    assert "foreachBatch with two actions" in finding.remedy


def test_loads_of_a_first_batch() -> None:
    loads = {"loads_checkpoint": 4, "reloads": 4, "load_checkpoint_bytes": 5 << 20}
    (finding,) = report.findings(rows(1, **loads))
    assert "read 4 stores from the checkpoint: 5.0 MiB" in finding.what
    assert "localDir" in finding.remedy
    (finding,) = report.findings(rows(1, **loads, distrusted=3))
    assert "3 local stores were there and not used" in finding.what
    # Each run has a first batch.
    again = [*rows(1), *(dataclasses.replace(row, run_id="s") for row in rows(1, **loads))]
    assert len(report.findings(again)) == 1


def test_operators_and_queries_have_paragraphs_of_their_own() -> None:
    join = [dataclasses.replace(row, operator_id=1, operator="join") for row in rows(1)]
    other = [dataclasses.replace(row, query_id="z", name=None) for row in rows(1)]
    lines = report.text([*rows(1), *join, *other]).splitlines()
    assert [line for line in lines if not line.startswith("    ")] == [
        "query clicks (q)",
        "  operator 0, stateStoreSave: batches 0 to 0, 12,345 rows in state, 3.0 MiB of memory",
        "  operator 1, join: batches 0 to 0, 12,345 rows in state, 3.0 MiB of memory",
        "query z",
        "  operator 0, stateStoreSave: batches 0 to 0, 12,345 rows in state, 3.0 MiB of memory",
    ]


#: What the sink says of a batch with nothing odd.
SINK: dict[str, Any] = dict.fromkeys(sink_columns(), 0) | {
    "sink_rows": 100,
    "sink_transactions": 2,
    "sink_decision_ms": 6,
    "sink_commit_ms": 4,
}


@pytest.mark.parametrize("operator", ["stateStoreSave", None])
def test_the_sink_has_a_paragraph(operator: str | None) -> None:
    of_sink = SINK | {"operator": operator, "operator_id": 0 if operator else -1}
    calm = [dataclasses.replace(row, **of_sink) for row in rows(4)]
    told = "  Kafka sink: batches 0 to 3, 400 rows, 0 of them by a copy; 10 ms in the mean until"
    page = report.text(calm)
    assert ("  operator 0, stateStoreSave" in page) == bool(operator)
    assert page.endswith(f"{told} readers saw a batch, 10 ms the slowest\n    nothing odd")
    assert "Kafka sink: batches 0 to 3" in page._repr_html_()
    for of_last, what in (
        ({"sink_refused_rows": 3}, "3 of 400 rows can never be sent"),
        ({"sink_copied_rows": 50}, "50 rows came to their readers by a copy"),
        ({"sink_discarded_batches": 2}, "2 batches were decided before"),
        ({"sink_decision_ms": 3000}, "take 76% of the batches"),
    ):
        page = report.text([*calm[:-1], dataclasses.replace(calm[-1], **of_last)])
        (odd,) = (line for line in page.splitlines() if line.startswith("    ! "))
        assert what in odd
        assert what in page._repr_html_()


def test_a_notebook_shows_a_table_and_everything_else_a_text() -> None:
    named = {"name": "<b>&", "operator": "<join>", "spills": 2, "spilled_bytes": 3 << 20}
    other = [dataclasses.replace(one, query_id="z", name=None) for one in rows(1)]
    page = report.text([*rows(3, **named), *other])
    assert isinstance(page, str)
    assert page.startswith("query <b>& (q)\n  operator 0, <join>: batches 0 to 2")
    html = page._repr_html_()
    tables = [cells(table) for table in html.split("<table>")[1:]]
    assert [len(table) for table in tables] == [2, 2]
    assert "<p>query &lt;b&gt;&amp; (q)</p>" in html
    head, (*facts, odd) = tables[0]
    assert dict(zip(head, facts, strict=False)) == {
        "operator": "0, &lt;join&gt;",
        "batches": "0 to 2",
        "rows in state": "12,345",
        "memory": "3.0 MiB",
        "batch": "1,000 ms in the mean, 1,000 ms the slowest; 1,000 ms the first of a run",
        "commit of a store": "50.0 ms in the mean (changelog 80%, serialize 20%)",
        "stores loaded": "",
    }
    (finding,) = report.findings(rows(3, **named))
    assert (head[-1], odd) == (
        "odd",
        f"<b>{finding.what}</b><br>{finding.remedy} (docs/{finding.page})".replace("'", "&#x27;"),
    )
    assert tables[1][1][-1] == "nothing odd"
    assert "<p>No batch" in report.text([])._repr_html_()
    again = pickle.loads(pickle.dumps(page))
    assert (again, again._repr_html_()) == (page, html)


def cells(table: str) -> list[list[str]]:
    """The cells of each row."""
    return [
        re.findall(r"<t[hd]>(.*?)</t[hd]>", line) for line in re.findall(r"<tr>(.*?)</tr>", table)
    ]
