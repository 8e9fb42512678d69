"""The input of queries, read from files."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from nexmark.events import END_MS

#: How late an event may be, as in the published tables; the generator's are in order.
DELAY = "4 seconds"
_SCHEMAS = {
    "persons": (
        "id LONG, name STRING, emailAddress STRING, creditCard STRING, city STRING, state STRING,"
        " personTime TIMESTAMP, personExtra STRING"
    ),
    "auctions": (
        "id LONG, itemName STRING, description STRING, initialBid LONG, reserve LONG,"
        " auctionTime TIMESTAMP, expires TIMESTAMP, seller LONG, category LONG, auctionExtra STRING"
    ),
    "bids": (
        "auction LONG, bidder LONG, price LONG, channel STRING, url STRING, bidTime TIMESTAMP,"
        " bidExtra STRING"
    ),
}


@dataclass(frozen=True)
class Events:
    """The input of a query, as a stream or in batch.

    Attributes
    ----------
    spark
        The session.
    directory
        What `nexmark.events.Input.write` has written.
    is_stream
        One file of each kind is a micro-batch; else all are read at once.
    """

    spark: SparkSession
    directory: Path
    is_stream: bool

    def persons(self) -> DataFrame:
        """Read new persons; each call is a source of its own."""
        return self._read("persons", "personTime")

    def auctions(self) -> DataFrame:
        """Read new auctions."""
        return self._read("auctions", "auctionTime")

    def bids(self) -> DataFrame:
        """Read bids."""
        return self._read("bids", "bidTime")

    def _read(self, kind: str, time: str) -> DataFrame:
        path, schema = str(self.directory / kind), _SCHEMAS[kind]
        if self.is_stream:
            files = self.spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
        else:
            files = self.spark.read.schema(schema)
        # Spark does not push a filter on event time below the watermark, so that the event that
        # closes all windows still moves it.
        end = sf.lit(datetime.fromtimestamp(END_MS / 1000, timezone.utc))
        return files.parquet(path).withWatermark(time, DELAY).where(sf.col(time) < end)
