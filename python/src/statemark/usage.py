"""The parser of the command `statemark`: its help has examples, and its errors a guess."""

from __future__ import annotations

import argparse
import re
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, NoReturn

# A command line without `statemark`, and what it does.
Example = tuple[str, str]

_WIDTH = 79
_UNKNOWN = "unrecognized arguments: "
_CHOICE = re.compile(r"invalid choice: '([^']*)'")


class Parser(argparse.ArgumentParser):
    """A parser whose help ends with examples, and whose errors say what may have been meant.

    Options have their whole names only: a script that shortens one would break when another
    option with the same beginning is added.

    Parameters
    ----------
    examples : sequence of Example, optional
        What the help ends with.
    description : str, optional
        A paragraph, which is wrapped.
    options : any
        Those of `argparse.ArgumentParser`.
    """

    def __init__(
        self,
        *,
        examples: Sequence[Example] = (),
        description: str = "",
        **options: Any,  # noqa: ANN401 - whatever argparse has
    ) -> None:
        lines = [f"  statemark {line}\n      {what}" for line, what in examples]
        super().__init__(
            **options,
            description=textwrap.fill(description, _WIDTH),
            epilog="\n".join(["examples:", *lines]) if lines else None,
            allow_abbrev=False,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        self._meaningless: list[tuple[argparse.Action, argparse.Action]] = []

    def needs(self, needed: argparse.Action, *options: argparse.Action) -> None:
        """Refuse options where another one is not given, without which they mean nothing.

        Parameters
        ----------
        needed : argparse.Action
            The other option: a flag.
        options : argparse.Action
            The options that mean nothing without it.
        """
        self._meaningless += [(option, needed) for option in options]

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:  # noqa: ANN401
        """Parse, and refuse what is not known here, where its usage can be shown.

        Parameters
        ----------
        args, namespace
            Those of `argparse.ArgumentParser.parse_known_args`.

        Returns
        -------
        tuple
            What was parsed, and an empty list.
        """
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(_UNKNOWN + " ".join(unknown))
        for option, needed in self._meaningless:
            if getattr(found, option.dest) != option.default and not getattr(found, needed.dest):
                name, other = option.option_strings[0], needed.option_strings[0]
                self.error(
                    f"argument {name}: means nothing without {other}; add {other}, or leave {name}"
                    " away"
                )
        return found, unknown

    def error(self, message: str) -> NoReturn:
        """Print how the command is used, what is wrong and what may have been meant; exit with 2.

        Parameters
        ----------
        message : str
            What is wrong.
        """
        self.print_usage(sys.stderr)
        meant = " or ".join(self._meant(message))
        hint = f"\n  did you mean {meant}?" if meant else ""
        self.exit(2, f"{self.prog}: {message}{hint}\n  examples: {self.prog} --help\n")

    def _meant(self, message: str) -> list[str]:
        if message.startswith(_UNKNOWN):
            word = message.removeprefix(_UNKNOWN).split()[0].partition("=")[0]
            known = [name for name in self._option_string_actions if name.startswith("--")]
        elif choice := _CHOICE.search(message):
            word = choice[1]
            known = [str(one) for action in self._actions for one in action.choices or ()]
            # `topic status` to somebody who says `status`.
            if found := [f"{name} {word}" for name, one in self._commands() if one.has(word)]:
                return found
        else:
            return []
        return get_close_matches(word, known, n=2)

    def has(self, command: str) -> bool:
        """Tell whether the parser has a command of this name.

        Parameters
        ----------
        command : str
            A name.

        Returns
        -------
        bool
            False as well where it has no commands.
        """
        return any(command == name for name, _ in self._commands())

    def _commands(self) -> Iterator[tuple[str, Parser]]:
        """Yield the parsers of its commands, by name."""
        for action in self._actions:
            if isinstance(action.choices, Mapping):
                yield from action.choices.items()
