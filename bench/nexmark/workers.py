"""Processes that run queries, each with one provider and one session."""

from __future__ import annotations

import multiprocessing
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from nexmark import runs
from nexmark.providers import PROVIDERS, session
from nexmark.queries import QUERIES, Query

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from multiprocessing.connection import Connection
    from pathlib import Path

    from nexmark.events import Input


class Worker:
    """
    A process with a session of its own, which runs what it is told.

    Parameters
    ----------
    provider
        Name of the provider; None for batch twins.
    scratch
        Directory for everything that is local.
    """

    def __init__(self, provider: str | None, scratch: Path) -> None:
        self.provider = provider
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(
            target=_serve, args=(theirs, provider, scratch / (provider or "twins"))
        )
        self._process.start()
        theirs.close()

    def ready(self) -> Worker:
        """Wait for the session."""
        self._answer()
        return self

    def do(self, query: Query, wanted: Input, events: Path, directory: Path) -> dict[str, float]:
        """
        Run a query.

        Parameters
        ----------
        query
            The query.
        wanted
            What was generated.
        events
            Directory of the input.
        directory
            For results; the worker creates it.

        Returns
        -------
        dict of str to float
            As of `nexmark.runs.run`; empty for a batch twin.
        """
        self._connection.send((query.name, wanted, events, directory))
        return self._answer()

    def stop(self) -> None:
        """Let the process end."""
        self._connection.close()
        self._process.join()

    def _answer(self) -> dict[str, float]:
        try:
            answer: dict[str, float] = self._connection.recv()
        except EOFError as error:
            problem = f"the process of {self.provider or 'the batch twins'} has failed, see above"
            raise SystemExit(problem) from error
        return answer


@contextmanager
def started(providers: Sequence[str | None], scratch: Path) -> Iterator[list[Worker]]:
    """Start a process for each provider, all at once, and stop them at the end."""
    with ExitStack() as stack:
        workers = [Worker(name, scratch) for name in providers]
        for worker in workers:
            stack.callback(worker.stop)
        yield [worker.ready() for worker in workers]


def _serve(connection: Connection, provider: str | None, scratch: Path) -> None:
    """Start a session and answer until the other side hangs up."""
    scratch.mkdir(parents=True, exist_ok=True)
    spark = session(PROVIDERS[provider] if provider else None, scratch)
    queries = {query.name: query for query in QUERIES}
    connection.send({})
    while True:
        try:
            name, wanted, events, directory = connection.recv()
        except EOFError:
            break
        if provider:
            measured = runs.run(spark, queries[name], wanted, events, directory)
            # Before the answer, after which another provider has its turn.
            runs.release(spark)
        else:
            measured = {}
            runs.write_twin(spark, queries[name], events, directory)
        connection.send(measured)
    spark.stop()
