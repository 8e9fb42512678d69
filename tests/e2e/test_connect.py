"""A query that one Spark Connect client runs is read by it and by others of the same server."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.connect import serve
from support.processes import Daemon
from support.session import STATEMARK_PROVIDER, statemark_jar
from support.streams import Arrivals, events

if TYPE_CHECKING:
    from collections.abc import Iterator

_CLIENT = Path(__file__).with_name("connect_client.py")


@pytest.fixture(autouse=True)
def _no_query_left() -> None:
    """Need no session in this process."""


@pytest.fixture
def server(provider: str, tmp_path: Path) -> Iterator[str]:
    """The address of a server that was started with the flags of `statemark conf`."""
    if provider != STATEMARK_PROVIDER:
        pytest.skip(f"starts a server with our jar, not {provider}")
    statemark_jar()
    tool = Path(sys.executable).with_name("statemark")
    flags = subprocess.run([tool, "conf"], check=True, capture_output=True, text=True).stdout
    daemon, url = serve(flags.split(), tmp_path / "server.log")
    yield url
    daemon.kill()


class Client:
    """A client in a process of its own, and what it has seen."""

    def __init__(self, server: str, directory: Path, *query_id: str) -> None:
        log = directory / f"client-{len(query_id)}.log"
        self.daemon = Daemon(
            [sys.executable, str(_CLIENT), server, str(directory), *query_id],
            log,
            {},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        stdout = self.daemon.process.stdout
        assert stdout
        line = stdout.readline()
        assert line, log.read_text()[-4000:]
        self.seen: dict[str, Any] = json.loads(line)


def test_a_query_is_read_from_its_own_and_from_another_session(server: str, tmp_path: Path) -> None:
    Arrivals(tmp_path / "events").add(*[events(i * 200, 200, keys=37) for i in range(3)])
    clients = [Client(server, tmp_path)]
    try:
        clients.append(Client(server, tmp_path, clients[0].seen["query"]))
        own, other = (client.seen for client in clients)
        assert own["session"] != other["session"]
        for seen in (own, other):
            wanted = seen["wanted"]
            assert len(wanted) > 10
            assert seen["live"] == seen["sql"] == wanted
            assert seen["get"] == wanted[:3]
            assert seen["get_many"] == [*wanted, None]
            assert seen["dirty"] == wanted[0]
            assert seen["newest"] == seen["last"]
            assert len(seen["last"]) == len(wanted)
        assert own["batch"] == other["batch"]
    finally:
        for client in clients:
            client.daemon.kill()
