"""The three queries, each written once for stream and batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from flights.data import END

if TYPE_CHECKING:
    from pathlib import Path

FLIGHT_SCHEMA = (
    "flight_id STRING, departs TIMESTAMP, hour TIMESTAMP, carrier STRING, origin STRING, "
    "dest STRING, delay_min LONG"
)
WEATHER_SCHEMA = (
    "origin STRING, hour TIMESTAMP, temp DOUBLE, wind_speed DOUBLE, precip DOUBLE, visib DOUBLE"
)

#: Repeats come about half a day late.
_LATENESS = "2 days"


def read(
    spark: SparkSession, directory: Path, schema: str, *, files_per_batch: int = 0
) -> DataFrame:
    """Read a directory of files: as a stream of some files per micro-batch, or (0) all at once."""
    if files_per_batch:
        reader = spark.readStream.schema(schema).option("maxFilesPerTrigger", files_per_batch)
        return reader.parquet(str(directory))
    return spark.read.schema(schema).parquet(str(directory))


def deduplicated(flights: DataFrame) -> DataFrame:
    """
    Keep the first delivery of each flight, for ever.

    No watermark bounds this state: every flight id ever seen stays, the seeded ones included.
    """
    return flights.dropDuplicates(["flight_id"]).where("carrier <> '--'").where(_before_end())


def delays(flights: DataFrame) -> DataFrame:
    """Count flights and sum delays per week, carrier and origin; two stateful operators."""
    once = _once(flights.withWatermark("departs", _LATENESS).where(_before_end()))
    return (
        once.groupBy(sf.window("departs", "7 days"), "carrier", "origin")
        .agg(
            sf.count("*").alias("flights"),
            sf.count("delay_min").alias("departed"),
            sf.sum("delay_min").alias("delay_min"),
            sf.max("delay_min").alias("worst_min"),
        )
        .select(
            "window.start", "carrier", "origin", "flights", "departed", "delay_min", "worst_min"
        )
    )


def with_weather(flights: DataFrame, weather: DataFrame) -> DataFrame:
    """Join each delivery with the weather of its hour and origin; those without any stay."""
    left = flights.withWatermark("hour", _LATENESS).where(_before_end("hour"))
    right = weather.withWatermark("hour", _LATENESS).where(_before_end("hour"))
    return left.join(right, ["origin", "hour"], "left_outer").drop("departs")


def _once(flights: DataFrame) -> DataFrame:
    if flights.isStreaming:
        return flights.dropDuplicatesWithinWatermark(["flight_id"])
    return flights.dropDuplicates(["flight_id"])


def _before_end(column: str = "departs") -> str:
    # On the event time on purpose: Spark would push any other filter below the watermark, and the
    # last row, which is there to move it, would be gone before it is seen.
    return f"{column} < TIMESTAMP '{END}'"
