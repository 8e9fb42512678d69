"""Brokers for tests in other languages: a process that takes commands, a line each.

Its first line is the address for clients; with `--secured` also the address for users who log in
and the certificate to trust, with blanks between. Then each of `start NODE`, `kill NODE` and `wait`
is answered with `done`, or with what went wrong. Brokers end with it, and it ends with its input.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from support.brokers import Brokers

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> None:
    """Start brokers, and do what is asked until there is no more input."""
    parser = argparse.ArgumentParser(prog="python -m support.broker_server", description=__doc__)
    parser.add_argument("directory", type=Path, help="takes data and logs")
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--set", action="append", default=[], help="a setting of nodes, key=value")
    parser.add_argument("--secured", action="store_true", help="a listener for users that log in")
    options = parser.parse_args(arguments)
    settings = dict(setting.split("=", 1) for setting in options.set)
    with Brokers(
        options.directory, nodes=options.nodes, settings=settings, secured=options.secured
    ) as brokers:
        secured = [brokers.secured_bootstrap, str(brokers.certificate)] if options.secured else []
        print(brokers.bootstrap, *secured, flush=True)
        for line in sys.stdin:
            print(_answer(brokers, *line.split()), flush=True)


def _answer(brokers: Brokers, command: str = "", *nodes: str) -> str:
    commands = {"start": brokers.start, "kill": brokers.kill, "wait": brokers.wait}
    try:
        commands[command](*map(int, nodes))
    except Exception as error:  # noqa: BLE001 - whatever it is, the other side is told
        return f"{command}: {error!r}"
    return "done"


if __name__ == "__main__":
    main()
