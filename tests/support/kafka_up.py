"""`make kafka-up` and `make kafka-down`: brokers for people, until they are taken down."""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from support.brokers import Brokers
from support.processes import command_of, group, wait_for

if TYPE_CHECKING:
    from collections.abc import Sequence

#: In the cluster's folder: address for clients, then the processes, a line each.
_RECORD = "up"
#: People name a topic and write to it.
_SETTINGS = {"auto.create.topics.enable": "true", "num.partitions": 3}


def main(arguments: Sequence[str] | None = None) -> int:
    """Start brokers, or end those that run."""
    parser = argparse.ArgumentParser(prog="python -m support.kafka_up", description=__doc__)
    parser.add_argument("what", choices=["up", "down"])
    parser.add_argument("--brokers", type=int, default=1, help="how many nodes")
    parser.add_argument("--directory", type=Path, required=True, help="takes data and logs")
    options = parser.parse_args(arguments)
    directory = options.directory.resolve()
    if options.what == "down":
        return _down(directory)
    if running := _processes(directory):
        print(f"{len(running)} brokers run in {directory} already: `make kafka-down` ends them")
        return 1
    shutil.rmtree(directory, ignore_errors=True)
    brokers = Brokers(directory, nodes=options.brokers, stays=True, settings=_SETTINGS)
    record = [brokers.bootstrap, *map(str, brokers.processes.values())]
    (directory / _RECORD).write_text("\n".join(record) + "\n")
    print(brokers.bootstrap)
    return 0


def _down(directory: Path) -> int:
    brokers = _processes(directory)
    for process in brokers:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    wait_for("the end of brokers", lambda: not any(map(group, brokers)))
    shutil.rmtree(directory, ignore_errors=True)
    return 0


def _processes(directory: Path) -> list[int]:
    """Return brokers that run there; a number that is another process's by now is not one."""
    with contextlib.suppress(FileNotFoundError):
        numbers = map(int, (directory / _RECORD).read_text().split()[1:])
        return [pid for pid in numbers if str(directory) in command_of(pid)]
    return []


if __name__ == "__main__":
    sys.exit(main())
