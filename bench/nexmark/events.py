"""The events of an auction site, as the published Nexmark generator distributes them.

Of 50 events in a row one is a person, three are auctions and 46 are bids. An event's number decides
its kind, its time and which ids exist by then; what is random is drawn for a whole batch at once.
Numbers and proportions are the defaults of nexmark-flink (github.com/nexmark/nexmark, which has
them from Apache Beam): 10,000 events a second of event time, in order.

A file of each kind is one micro-batch. The same seed gives the same files.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from nexmark.text import Text

PERSONS, AUCTIONS, BIDS = 1, 3, 46
EPOCH = PERSONS + AUCTIONS + BIDS
FIRST_ID = 1000
FIRST_CATEGORY, CATEGORIES = 10, 5
EVENTS_PER_SECOND = 10_000
#: 2015-07-15, in milliseconds.
BASE_MS = 1_436_918_400_000
#: What closes the windows of a stream comes a day later, and is no event of the benchmark's.
END_MS = BASE_MS + 12 * 3_600_000
_CLOSING_MS = BASE_MS + 24 * 3_600_000

ACTIVE_PERSONS, IN_FLIGHT_AUCTIONS = 1000, 100
#: Bids and auctions name persons and auctions that come a little later as well.
LEAD = 10
#: One of so many ids in a row is hot.
HOT_STEP = 100
#: All but one of so many draws take the hot one.
HOT_AUCTION, HOT_SELLER, HOT_BIDDER, HOT_CHANNEL = 2, 4, 4, 2
#: Mean bytes of an event; `extra` fills it up.
PERSON_BYTES, AUCTION_BYTES, BID_BYTES = 200, 500, 100
CHANNELS = 10_000
_HOT_CHANNELS = ("Google", "Facebook", "Baidu", "Apple")
_STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")
_CITIES = (
    *("Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland"),
    *("Bend", "Redmond", "Seattle", "Kent", "Cheyenne"),
)
_FIRST_NAMES = (
    *("Peter", "Paul", "Luke", "John", "Saul", "Vicky"),
    *("Kate", "Julie", "Sarah", "Deiter", "Walter"),
)
_LAST_NAMES = (
    *("Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris"),
)

Ints = np.ndarray


@dataclass(frozen=True)
class Input:
    """What is generated.

    Attributes
    ----------
    batches
        Number of micro-batches (> 0), without the one that closes all windows.
    events
        Of each batch; a multiple of 50.
    seed
        Of everything that is random.
    """

    batches: int
    events: int
    seed: int = 1

    def __post_init__(self) -> None:
        if self.batches < 1 or self.events < EPOCH or self.events % EPOCH:
            problem = f"{self.batches} batches of {self.events} events; take a multiple of {EPOCH}"
            raise ValueError(problem)

    def write(self, cache: Path) -> Path:
        """Write the files unless they exist, and return their directory.

        Its name has the source of the generator as well, so that no old events are taken for new.
        """
        sources = b"".join(
            Path(__file__).with_name(f).read_bytes() for f in ("events.py", "text.py")
        )
        source = hashlib.sha256(sources).hexdigest()[:8]
        directory = cache / f"{self.batches}x{self.events}-seed{self.seed}-{source}"
        if directory.is_dir():
            return directory
        staged = cache / f".{directory.name}-{os.getpid()}"
        shutil.rmtree(staged, ignore_errors=True)
        for batch in range(self.batches):
            _write(staged, batch, generate(self, batch))
        _write(staged, self.batches, closing())
        staged.rename(directory)
        return directory


def generate(wanted: Input, batch: int) -> dict[str, pa.Table]:
    """
    Generate the events of a batch.

    Parameters
    ----------
    wanted
        What is generated.
    batch
        Number of the batch; it can be generated without those before it.

    Returns
    -------
    dict of str to pyarrow.Table
        Tables `persons`, `auctions` and `bids`, each in order of time.
    """
    random = np.random.default_rng([wanted.seed, batch])
    text = Text(random)
    number = np.arange(batch * wanted.events, (batch + 1) * wanted.events, dtype=np.int64)
    place = number % EPOCH
    is_auction = (place >= PERSONS) & (place < PERSONS + AUCTIONS)
    return {
        "persons": _persons(number[place < PERSONS], random, text),
        "auctions": _auctions(number[is_auction], random, text),
        "bids": _bids(number[place >= PERSONS + AUCTIONS], random, text),
    }


def closing() -> dict[str, pa.Table]:
    """Generate one event of each kind, a day later than all others and related to none."""
    late = generate(Input(1, EPOCH), 0)
    times = {"persons": "personTime", "auctions": "auctionTime", "bids": "bidTime"}
    # Each id is another one, so that nothing joins.
    ids = {
        "persons": {"id": -1},
        "auctions": {"id": -2, "seller": -3},
        "bids": {"auction": -4, "bidder": -5},
    }
    for kind, table in late.items():
        row = _with(table.slice(0, 1), times[kind], _times(np.array([_CLOSING_MS])))
        for name, value in ids[kind].items():
            row = _with(row, name, pa.array([value]))
        late[kind] = row
    return late


def time_of(number: Ints) -> Ints:
    """Return when events with these numbers come, in milliseconds since 1970."""
    return BASE_MS + number * 1000 // EVENTS_PER_SECOND


def last_person(number: Ints) -> Ints:
    """Return the newest person when an event comes, from 0."""
    return number // EPOCH


def last_auction(number: Ints) -> Ints:
    """Return the newest auction when an event comes, from 0; -1 before the first."""
    place = np.clip(number % EPOCH - PERSONS, -1, AUCTIONS - 1)
    return number // EPOCH * AUCTIONS + place


def _persons(number: Ints, random: np.random.Generator, text: Text) -> pa.Table:
    many = len(number)
    first, last = _picked(_FIRST_NAMES, many, random), _picked(_LAST_NAMES, many, random)
    name = [f"{f} {n}" for f, n in zip(first, last, strict=True)]
    email = [
        f"{who}@{where}.com"
        for who, where in zip(text.up_to(7, many), text.up_to(5, many), strict=True)
    ]
    card = [
        " ".join(f"{part:04d}" for part in four) for four in random.integers(10_000, size=(many, 4))
    ]
    city, state = _picked(_CITIES, many, random), _picked(_STATES, many, random)
    used = (
        8
        + 19
        + 2
        + np.array([len(n) + len(e) + len(c) for n, e, c in zip(name, email, city, strict=True)])
    )
    return pa.table(
        {
            "id": last_person(number) + FIRST_ID,
            "name": name,
            "emailAddress": email,
            "creditCard": card,
            "city": city,
            "state": state,
            "personTime": _times(time_of(number)),
            "personExtra": text.extra(used, PERSON_BYTES),
        }
    )


def _auctions(number: Ints, random: np.random.Generator, text: Text) -> pa.Table:
    many = len(number)
    hot = last_person(number) // HOT_STEP * HOT_STEP
    seller = np.where(random.integers(HOT_SELLER, size=many) > 0, hot, _person(number, random))
    initial = _prices(many, random)
    time = time_of(number)
    # So long that on average IN_FLIGHT_AUCTIONS are open.
    horizon = time_of(number + IN_FLIGHT_AUCTIONS * EPOCH // AUCTIONS) - time
    name, description = text.up_to(20, many), text.up_to(100, many)
    used = 48 + np.array([len(n) + len(d) for n, d in zip(name, description, strict=True)])
    return pa.table(
        {
            "id": last_auction(number) + FIRST_ID,
            "itemName": name,
            "description": description,
            "initialBid": initial,
            "reserve": initial + _prices(many, random),
            "auctionTime": _times(time),
            "expires": _times(time + 1 + random.integers(np.maximum(2 * horizon, 1))),
            "seller": seller + FIRST_ID,
            "category": FIRST_CATEGORY + random.integers(CATEGORIES, size=many),
            "auctionExtra": text.extra(used, AUCTION_BYTES),
        }
    )


def _bids(number: Ints, random: np.random.Generator, text: Text) -> pa.Table:
    many = len(number)
    last = last_auction(number)
    oldest = np.maximum(last - IN_FLIGHT_AUCTIONS, 0)
    auction = np.where(
        random.integers(HOT_AUCTION, size=many) > 0,
        last // HOT_STEP * HOT_STEP,
        oldest + random.integers(last - oldest + 1 + LEAD),
    )
    # The second one, so that hot bidders are not the hot sellers.
    hot = last_person(number) // HOT_STEP * HOT_STEP + 1
    bidder = np.where(random.integers(HOT_BIDDER, size=many) > 0, hot, _person(number, random))
    channel = np.where(
        random.integers(HOT_CHANNEL, size=many) > 0,
        random.integers(len(_HOT_CHANNELS), size=many),
        len(_HOT_CHANNELS) + random.integers(CHANNELS, size=many),
    )
    names, urls = _channels()
    return pa.table(
        {
            "auction": auction + FIRST_ID,
            "bidder": bidder + FIRST_ID,
            "price": _prices(many, random),
            "channel": names.take(channel),
            "url": urls.take(channel),
            "bidTime": _times(time_of(number)),
            "bidExtra": text.extra(np.full(many, 32), BID_BYTES),
        }
    )


def _person(number: Ints, random: np.random.Generator) -> Ints:
    """One of the active persons for each event, or one that comes soon."""
    persons = last_person(number) + 1
    active = np.minimum(persons, ACTIVE_PERSONS)
    return persons - active + random.integers(active + LEAD)


def _prices(many: int, random: np.random.Generator) -> Ints:
    return np.round(10 ** (6 * random.random(many)) * 100).astype(np.int64)


def _channels() -> tuple[pa.Array, pa.Array]:
    """Names and addresses of the channels, hot ones first; they are the same for every seed."""
    random = np.random.default_rng(0)
    text = Text(random)
    many = len(_HOT_CHANNELS) + CHANNELS
    folders = zip(*(text.up_to(5, many) for _ in range(3)), strict=True)
    urls = [f"https://www.nexmark.com/{'/'.join(three)}/item.htm?query=1" for three in folders]
    with_id = random.integers(10, size=many) > 0
    for i in range(len(_HOT_CHANNELS), many):
        if with_id[i]:
            urls[i] += f"&channel_id={i}"
    return pa.array([*_HOT_CHANNELS, *(f"channel-{i}" for i in range(CHANNELS))]), pa.array(urls)


def _picked(names: tuple[str, ...], many: int, random: np.random.Generator) -> list[str]:
    return [names[i] for i in random.integers(len(names), size=many)]


def _times(ms: Ints) -> pa.Array:
    return pa.array(ms * 1000, pa.timestamp("us", "UTC"))


def _with(table: pa.Table, name: str, values: pa.Array) -> pa.Table:
    return table.set_column(table.column_names.index(name), name, values)


def _write(directory: Path, batch: int, tables: dict[str, pa.Table]) -> None:
    for kind, table in tables.items():
        file = directory / kind / f"{batch:05d}.parquet"
        file.parent.mkdir(parents=True, exist_ok=True)
        # Several row groups, so that more than one task can read a file.
        groups = max(1, -(-len(table) // 4))
        pq.write_table(table, file, row_group_size=groups, compression="none")
        # Spark reads in the order of modification times.
        os.utime(file, (BASE_MS // 1000 + batch,) * 2)
