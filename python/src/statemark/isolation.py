"""The rows of a running store that a live query sees."""

from __future__ import annotations

from enum import Enum

from statemark.errors import SettingsError


class IsolationLevel(Enum):
    """The rows that a live query sees of a store that a micro-batch is writing.

    Writers are not concerned: a micro-batch always reads its own writes, at either level.

    Attributes
    ----------
    READ_COMMITTED
        Only what a finished commit made visible; all of a batch in one store, or nothing of it.
        Its anomaly: *non-repeatable read*. Two reads on both sides of a commit differ.
    READ_UNCOMMITTED
        Staged writes of the running batch as well, so a read is as fresh as can be. Its
        anomaly: *dirty read*. A value can be seen that a rollback then takes away.

    Examples
    --------
    >>> from statemark import IsolationLevel
    >>> IsolationLevel.parse("read_uncommitted")
    <IsolationLevel.READ_UNCOMMITTED: 'READ_UNCOMMITTED'>
    """

    READ_COMMITTED = "READ_COMMITTED"
    READ_UNCOMMITTED = "READ_UNCOMMITTED"

    @classmethod
    def parse(cls, value: IsolationLevel | str) -> IsolationLevel:
        """Return the level that `value` names.

        Parameters
        ----------
        value : IsolationLevel or str
            A level, or its name in upper or lower case.

        Returns
        -------
        IsolationLevel
            The level.

        Raises
        ------
        SettingsError
            If no level has this name.
        """
        if isinstance(value, cls):
            return value
        if isinstance(value, str):
            found = cls.__members__.get(value.strip().upper())
            if found is not None:
                return found
        problem = f"bad isolation level {value!r}"
        raise SettingsError(
            problem,
            reason="it names none of the levels",
            remedy=f"use one of {', '.join(cls.__members__)}, in either case",
        )
