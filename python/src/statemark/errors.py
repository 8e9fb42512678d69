"""Every error that the package raises on its own account.

There are few types, split by what the caller does next; each says which in its first line.
Messages name the problem, the reason, the remedy and the values. Their wording may change,
their types and attributes do not.
"""

from __future__ import annotations


class StatemarkError(Exception):
    """Base of all errors of this package.

    Parameters
    ----------
    problem : str
        What failed, with the values.
    reason : str
        Why it failed.
    remedy : str
        What to do about it.

    Examples
    --------
    >>> from statemark import StatemarkError
    >>> print(StatemarkError("the lamp is dark", reason="no bulb", remedy="put one in"))
    the lamp is dark
      reason: no bulb
      remedy: put one in
    """

    def __init__(self, problem: str, *, reason: str, remedy: str) -> None:
        super().__init__(f"{problem}\n  reason: {reason}\n  remedy: {remedy}")
        self.problem = problem
        self.reason = reason
        self.remedy = remedy

    def __reduce__(self) -> tuple[object, ...]:
        # Exceptions pickle by their positional arguments, of which this one has others.
        return (_rebuild, (type(self), self.problem, self.reason, self.remedy))


def _rebuild(kind: type[StatemarkError], problem: str, reason: str, remedy: str) -> StatemarkError:
    return kind(problem, reason=reason, remedy=remedy)


class SettingsError(StatemarkError, ValueError):
    """Correct the call: a setting has an unknown key or a bad value."""


class MissingDependencyError(StatemarkError, ImportError):
    """Install something: an optional Python package is absent."""


class JarNotFoundError(StatemarkError, FileNotFoundError):
    """Build or reinstall: the plugin's jar is not where it should be."""


class SparkVersionError(StatemarkError):
    """Change the version of Spark or of this package: no bundled jar fits."""


class ConnectError(StatemarkError):
    """Configure the server instead: a Spark Connect client cannot choose the state store."""


class SessionRunningError(StatemarkError):
    """Restart: Spark already runs, and what was asked for takes effect only at its start."""


class LiveReadError(StatemarkError):
    """Correct the key, or read again: a running query gave no answer to a read by key."""
