"""Nexmark's events are as published, and each of its queries gives what it gives in batch."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from support.modes import IS_WHOLE
from support.session import ROOT

sys.path.insert(0, str(ROOT / "bench"))

from nexmark import runs
from nexmark.events import BASE_MS, END_MS, Input, closing, generate
from nexmark.queries import QUERIES, Query

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

#: Queries, and others with the same operators that run for them unless STATEMARK_MODES=all.
ALIKE = {"q9": "q4", "q16": "q17", "q20": "q3"}
CHOSEN = [query for query in QUERIES if IS_WHOLE or query.name not in ALIKE]
# 12 seconds of event time: the first window of ten seconds closes before the event that closes all.
SMALL = Input(batches=2, events=75_000 if IS_WHOLE else 60_000)


@pytest.fixture(scope="module")
def tables() -> dict[str, pa.Table]:
    """All events, without those that close windows."""
    batches = [generate(SMALL, batch) for batch in range(SMALL.batches)]
    return {kind: pa.concat_tables(b[kind] for b in batches) for kind in batches[0]}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return SMALL.write(tmp_path_factory.mktemp("nexmark"))


# ---- events


def test_same_seed_gives_same_events(tables: dict[str, pa.Table]) -> None:
    again = generate(SMALL, 1)
    other = generate(Input(SMALL.batches, SMALL.events, seed=2), 1)
    for kind, table in again.items():
        start = len(table)
        assert table == tables[kind].slice(start, len(table))
        assert table != other[kind]


def test_files_are_written_once(written: Path) -> None:
    files = sorted(written.rglob("*.parquet"))
    assert len(files) == 3 * (SMALL.batches + 1)
    before = [file.stat().st_ino for file in files]
    assert SMALL.write(written.parent) == written
    assert [file.stat().st_ino for file in files] == before


def test_proportions(tables: dict[str, pa.Table]) -> None:
    epochs = SMALL.batches * SMALL.events // 50
    assert {kind: len(t) for kind, t in tables.items()} == {
        "persons": epochs,
        "auctions": 3 * epochs,
        "bids": 46 * epochs,
    }


def test_time_advances_with_the_number_of_events(tables: dict[str, pa.Table]) -> None:
    for kind, column in (
        ("persons", "personTime"),
        ("auctions", "auctionTime"),
        ("bids", "bidTime"),
    ):
        ms = pc.divide(tables[kind][column].cast(pa.int64()), 1000).to_numpy()
        assert (ms[1:] >= ms[:-1]).all()
        # 10,000 events a second.
        assert ms[0] - BASE_MS < 1
        assert ms[-1] - BASE_MS == pytest.approx(SMALL.batches * SMALL.events / 10, abs=5)


def test_ids_are_consecutive(tables: dict[str, pa.Table]) -> None:
    for kind in ("persons", "auctions"):
        ids = tables[kind]["id"].to_numpy()
        assert (ids == range(1000, 1000 + len(ids))).all()


def test_hot_ones(tables: dict[str, pa.Table]) -> None:
    bids, auctions = tables["bids"], tables["auctions"]
    shares = {
        "auction": (bids["auction"].to_numpy() % 100 == 0).mean(),
        "bidder": (bids["bidder"].to_numpy() % 100 == 1).mean(),
        "seller": (auctions["seller"].to_numpy() % 100 == 0).mean(),
        "channel": pc.mean(pc.is_in(bids["channel"], pa.array(["Google", "Apple"]))).as_py(),
    }
    assert shares == pytest.approx(
        {"auction": 0.505, "bidder": 0.7525, "seller": 0.7525, "channel": 0.25}, abs=0.02
    )


def test_prices_and_categories(tables: dict[str, pa.Table]) -> None:
    price = tables["bids"]["price"].to_numpy()
    assert 100 <= price.min() < 200
    assert 5e7 < price.max() <= 1e8
    assert set(tables["auctions"]["category"].to_pylist()) == {10, 11, 12, 13, 14}


def test_auctions_and_their_bids_are_within_the_bounds_of_queries(
    tables: dict[str, pa.Table],
) -> None:
    """Queries tell Spark a second, so that it can drop state without dropping a result."""
    auctions = tables["auctions"].to_pandas()
    lengths = (auctions["expires"] - auctions["auctionTime"]).dt.total_seconds()
    assert lengths.max() < 1
    # As many events as it takes for a hundred auctions.
    assert lengths.mean() == pytest.approx(0.167, abs=0.01)
    met = tables["bids"].to_pandas().merge(auctions, left_on="auction", right_on="id")
    assert (met["bidTime"] - met["auctionTime"]).dt.total_seconds().abs().max() < 1


def test_closing_events_lie_behind_the_end() -> None:
    for table in closing().values():
        assert len(table) == 1
        times = [v for v in table.to_pylist()[0].values() if hasattr(v, "timestamp")]
        assert max(times).timestamp() * 1000 > END_MS


@pytest.mark.parametrize(("batches", "events"), [(0, 50), (1, 0), (1, 75)])
def test_bad_sizes_are_refused(batches: int, events: int) -> None:
    with pytest.raises(ValueError, match="multiple of 50"):
        Input(batches, events)


# ---- queries


@pytest.mark.parametrize("query", CHOSEN, ids=lambda query: query.name)
def test_query_gives_what_it_gives_in_batch(
    spark: SparkSession, query: Query, written: Path, tmp_path: Path
) -> None:
    measured = runs.run(spark, query, SMALL, written, tmp_path / "run")
    runs.write_twin(spark, query, written, tmp_path / "twin")
    assert runs.check(query, tmp_path / "run", tmp_path / "twin") > 0
    assert measured["events/s"] > 0
    assert measured["state rows"] > 0


# ---- the comparison finds what it is for


def _emit(work: Path, *batches: dict[str, list[int]]) -> None:
    for n, rows in enumerate(batches):
        directory = work / f"out/batch={n:06d}"
        directory.mkdir(parents=True)
        pq.write_table(pa.table(rows), directory / "part.parquet")


@pytest.mark.parametrize(
    ("twin", "problem"),
    [
        ({"key": [1, 2], "n": [10, 21]}, None),
        ({"key": [1, 2], "n": [10, 20]}, "first difference: {'key': 2, 'n': 21}"),
        ({"key": [1, 2, 3], "n": [10, 21, 30]}, "2 rows, in batch 3"),
        ({"key": [], "n": []}, "no rows"),
    ],
    ids=["same", "another value", "another row", "empty"],
)
def test_last_row_of_a_key_is_compared(
    tmp_path: Path, twin: dict[str, list[int]], problem: str | None
) -> None:
    query = Query("q0", "", lambda events: events.bids(), mode="update", key=("key",))
    _emit(tmp_path, {"key": [2, 1], "n": [20, 10]}, {"key": [2], "n": [21]})
    schema = pa.schema([("key", pa.int64()), ("n", pa.int64())])
    pq.write_table(pa.table(twin, schema=schema), tmp_path / "twin.parquet")
    if problem is None:
        assert runs.check(query, tmp_path, tmp_path / "twin.parquet") == 2
        return
    with pytest.raises(runs.MismatchError) as caught:
        runs.check(query, tmp_path, tmp_path / "twin.parquet")
    assert problem in str(caught.value)
    assert str(caught.value).startswith("q0: ")
