"""The deduplication once more, in a fresh process: how long until it has committed a batch."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flights.side import from_arguments

if TYPE_CHECKING:
    from flights.side import Side


def restarted(side: Side) -> dict[str, Any]:
    """
    Start the query of `Side.deduplicate` again, with one more file of flights that it has seen.

    Parameters
    ----------
    side
        A fresh one, on the folder of the side that has run.

    Returns
    -------
    dict of str to Any
        ``to_commit_ms`` from the start of the query to the end of its first batch; ``opened`` and
        ``opened_bytes``, how many files were opened below its state directory, and their size.
    """
    seen = min((side.inputs / "flights").iterdir())
    # The same query on a state of its own first: how long Spark takes to compile a plan, and Java
    # to load classes, is not what differs.
    warm = side.work / "warm"
    warm.mkdir()
    os.link(seen, warm / seen.name)
    side.start("warm", side.first_of_each(warm), availableNow=True).awaitTermination()
    arriving = side.work / "arriving"
    os.link(seen, arriving / f"flights-again-{seen.name}")
    start = time.monotonic()
    side.start("dedup", side.first_of_each(arriving), availableNow=True).awaitTermination()
    to_commit_ms = (time.monotonic() - start) * 1000
    jvm: Any = side.spark._jvm
    state = side.checkpoint("dedup") / "state"
    events = jvm.statemark.testkit.FileCounts.eventsSince(str(state), 0)
    files = {event.path() for event in events if event.kind() == "open"}
    # What was read and then deleted is not there to be measured; nothing of this size is.
    sizes = [path.stat().st_size for path in map(Path, files) if path.exists()]
    return {"to_commit_ms": to_commit_ms, "opened": len(files), "opened_bytes": sum(sizes)}


def main() -> None:
    """Restart one side and write its measures."""
    side = from_arguments()
    measures = restarted(side)
    side.say(
        "dedup: restarted in a fresh process, first batch committed after "
        f"{measures['to_commit_ms']:,.0f} ms"
    )
    (side.work / "restart.json").write_text(json.dumps(measures, indent=2))
    side.spark.stop()


if __name__ == "__main__":
    main()
