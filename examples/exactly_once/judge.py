"""What a topic must hold, and what is wrong with what a reader finds there.

What must be there is computed from the input topic and from the offsets of each batch in the
checkpoint, without Spark. Rows are read by librdkafka, which shares no code with Kafka's clients.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from support.topics import Row

#: Offsets of the input's partitions behind a batch.
Ends = dict[int, int]
#: Flights and minutes of delay.
Total = tuple[int, int]


@dataclass(frozen=True)
class Written:
    """A row of the output: its total, and who wrote it."""

    batch: int
    key: str
    total: Total
    run: int
    partition: int
    attempt: int


@dataclass(frozen=True)
class Verdict:
    """
    What is wrong, by batch.

    Attributes
    ----------
    rows, wanted
        Rows that a reader finds, and rows that must be there.
    duplicated, lost, wrong
        Rows that are there more than once, how often too much; rows that are missing; rows with a
        total that the batch has not.
    mixed
        Batches with rows of two tries: of two runs of the job, or of two attempts at a task.
    """

    rows: int
    wanted: int
    batches: int
    duplicated: Mapping[int, int]
    lost: Mapping[int, int]
    wrong: Mapping[int, int]
    mixed: frozenset[int]

    @property
    def is_right(self) -> bool:
        """Whether each row is there once, and each batch of one try."""
        return not (self.duplicated or self.lost or self.wrong or self.mixed)

    def chart(self) -> str:
        """Draw a character for each batch."""
        return "".join(map(self._mark, range(self.batches)))

    def _mark(self, batch: int) -> str:
        if batch in self.lost or batch in self.wrong:
            return "!"
        return "x" if batch in self.mixed else "+" if batch in self.duplicated else "."


def judge(found: Iterable[Written], wanted: Sequence[Mapping[str, Total]]) -> Verdict:
    """Compare what a reader finds with what each batch must have written."""
    counts: Counter[tuple[int, str]] = Counter()
    duplicated: Counter[int] = Counter()
    wrong: Counter[int] = Counter()
    runs: dict[int, set[int]] = defaultdict(set)
    attempts: dict[tuple[int, int], set[tuple[int, int]]] = defaultdict(set)
    for row in found:
        counts[row.batch, row.key] += 1
        duplicated[row.batch] += counts[row.batch, row.key] > 1
        is_known = row.batch < len(wanted)
        wrong[row.batch] += not is_known or wanted[row.batch].get(row.key) != row.total
        runs[row.batch].add(row.run)
        attempts[row.batch, row.partition].add((row.run, row.attempt))
    mixed = {batch for batch, of in runs.items() if len(of) > 1}
    mixed |= {batch for (batch, _), of in attempts.items() if len(of) > 1}
    lost = {
        batch: missing
        for batch, totals in enumerate(wanted)
        if (missing := sum((batch, key) not in counts for key in totals))
    }
    return Verdict(
        rows=counts.total(),
        wanted=sum(map(len, wanted)),
        batches=len(wanted),
        duplicated=+duplicated,
        lost=lost,
        wrong=+wrong,
        mixed=frozenset(mixed),
    )


def wanted(rows: Sequence[Row], ends: Sequence[Ends]) -> list[dict[str, Total]]:
    """Return for each batch the totals that it must write: of the keys that it has rows of."""
    by_partition: dict[int, list[Row]] = defaultdict(list)
    for row in rows:
        by_partition[row.partition].append(row)
    so_far: dict[str, Total] = {}
    read: Counter[int] = Counter()
    batches = []
    for end in ends:
        touched = set()
        for partition, offset in end.items():
            of = by_partition[partition]
            while read[partition] < len(of) and of[read[partition]].offset < offset:
                flight = json.loads(of[read[partition]].value or b"")
                read[partition] += 1
                names = ("carrier", "flight", "origin", "dest")
                key = " ".join(str(flight[name]) for name in names)
                count, delay = so_far.get(key, (0, 0))
                so_far[key] = (count + 1, delay + (flight["delay_min"] or 0))
                touched.add(key)
        batches.append({key: so_far[key] for key in touched})
    return batches


def ends_of(checkpoint: Path) -> list[Ends]:
    """Read where each batch ends in its input: the last line of its entry in the offset log."""
    entries = sorted(int(file.name) for file in (checkpoint / "offsets").glob("[0-9]*"))
    ends = []
    for number in entries:
        (topic,) = json.loads(
            (checkpoint / f"offsets/{number}").read_text().splitlines()[-1]
        ).items()
        ends.append({int(partition): offset for partition, offset in topic[1].items()})
    return ends


def written(rows: Iterable[Row], header: str) -> Iterable[Written]:
    """Read rows of the output."""
    for row in rows:
        assert row.key
        assert row.value
        total = json.loads(row.value)
        batch, run, partition, attempt = map(int, (dict(row.headers)[header] or b"").split())
        yield Written(
            batch,
            row.key.decode(),
            (total["flights"], total["delay_min"]),
            run,
            partition,
            attempt,
        )
