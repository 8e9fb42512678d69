"""What an offline command tells of itself, and the argument that most of them have."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from statemark import units

if TYPE_CHECKING:
    from statemark.usage import Example, Parser


@dataclass(frozen=True)
class Command:
    """One subcommand.

    Parameters
    ----------
    name : str
        Its name, here and in the JVM; a second word is that of a subcommand.
    summary : str
        One line for the list of commands.
    description : str
        A paragraph for its help.
    add_arguments : callable
        Adds its arguments besides the checkpoint to a parser.
    examples : sequence of Example
        What its help ends with.
    has_checkpoint : bool
        Whether it works on a checkpoint.
    asks_kafka : bool
        Whether it talks to brokers, with Kafka's client library and without a session of Spark's.
    needs_session : bool
        Whether it may need a session after all: to run a query, or to read a checkpoint.
    """

    name: str
    summary: str
    description: str
    add_arguments: Callable[[Parser], None]
    examples: Sequence[Example]
    has_checkpoint: bool = True
    asks_kafka: bool = False
    needs_session: bool = False


def json_argument(parser: argparse.ArgumentParser) -> None:
    """Add ``--json`` to a parser."""
    parser.add_argument("--json", action="store_true", help="one JSON object instead of text")


def fitting(parse: Callable[[str], object]) -> Callable[[str], str]:
    """Return a parser that refuses a text before Spark starts, and leaves it as it is."""

    def check(text: str) -> str:
        try:
            parse(text)
        except units.RefusedError as error:
            problem = f"{text!r} is refused: {error.reason}"
            raise argparse.ArgumentTypeError(problem) from None
        return text

    return check
