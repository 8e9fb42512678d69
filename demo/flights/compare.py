"""The results of the streams against the same queries in batch on the same files."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from flights import queries
from flights.session import batch_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_EXAMPLES = 3


def expected(spark: SparkSession, inputs: Path) -> dict[str, DataFrame]:
    """
    Run the three queries in batch.

    Parameters
    ----------
    spark
        Any session in the time zone UTC.
    inputs
        Directory that `flights.data.write_inputs` filled.

    Returns
    -------
    dict of str to DataFrame
        Results by the name of the query.
    """
    flights = queries.read(spark, inputs / "flights", queries.FLIGHT_SCHEMA)
    weather = queries.read(spark, inputs / "weather", queries.WEATHER_SCHEMA)
    return {
        "dedup": queries.deduplicated(flights),
        "delays": queries.delays(flights),
        "weather": queries.with_weather(flights, weather),
    }


def difference(got: DataFrame, wanted: DataFrame) -> str:
    """
    Compare two results as bags of rows: every column exactly, repeated rows counted.

    Returns
    -------
    str
        Empty when they are equal, else how they differ, with examples.
    """
    if got.schema.simpleString() != wanted.schema.simpleString():
        return f"columns {got.schema.simpleString()} instead of {wanted.schema.simpleString()}"
    problems = []
    for what, rows in (
        ("missing", wanted.exceptAll(got)),
        ("too many", got.exceptAll(wanted)),
    ):
        rows = rows.cache()
        if count := rows.count():
            examples = [str(r.asDict()) for r in rows.limit(_EXAMPLES).collect()]
            problems.append(f"{count:,} rows {what}, such as {'; '.join(examples)}")
        rows.unpersist()
    return " and ".join(problems)


def main() -> None:
    """Compare the results of several sides; write the verdicts as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", required=True, type=Path)
    parser.add_argument("--work", required=True, type=Path)
    parser.add_argument("sides", nargs="+", type=Path, help="work directories of the sides")
    options = parser.parse_args()
    spark = batch_session(options.work)
    verdicts: dict[str, dict[str, object]] = {}
    for name, wanted in expected(spark, options.inputs).items():
        wanted = wanted.cache()
        verdicts[name] = {"rows": wanted.count()}
        for side in options.sides:
            got = spark.read.parquet(str(side / "results" / name)).select(wanted.columns)
            verdicts[name][side.name] = difference(got, wanted)
        wanted.unpersist()
    (options.work / "verdicts.json").write_text(json.dumps(verdicts, indent=2))
    spark.stop()


if __name__ == "__main__":
    main()
