"""A finding of `statemark doctor`, and the kind that it is of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

PROBLEM = "problem"
WARNING = "warning"

_KIB = 1024


@dataclass(frozen=True)
class Finding:
    """Something odd on a machine, in settings, or in a checkpoint.

    Attributes
    ----------
    name : str
        The name of its kind, such as ``java-old``.
    severity : str
        ``problem`` where a query does not start, fails, or needs a copy of something; ``warning``
        where it runs, and slower, with less safety or otherwise than its settings say.
    problem : str
        What was found.
    reason : str
        Why that is odd.
    remedy : str
        What to do.
    values : dict of str to object
        The values that it was found from, by name; sizes in bytes.
    """

    name: str
    severity: str
    problem: str
    reason: str
    remedy: str
    values: dict[str, object]

    def __str__(self) -> str:
        """Return a line for the problem, one for the reason and one for the remedy."""
        head = f"{self.severity:<8} {self.name}: {self.problem}"
        return f"{head}\n  reason: {self.reason}\n  remedy: {self.remedy}"


class Kind(NamedTuple):
    """A kind of findings: a row of the table `doctor_kinds.KINDS`.

    Attributes
    ----------
    name : str
        Its name.
    severity : str
        ``problem`` or ``warning``, as `Finding` has it.
    text : str
        What is odd, as the documents have it.
    """

    name: str
    severity: str
    text: str

    def found(self, problem: str, *, reason: str, remedy: str, **values: object) -> Finding:
        """Return a finding of this kind.

        Parameters
        ----------
        problem, reason, remedy : str
            Those of the finding.
        **values : object
            Numbers and texts that it was found from.

        Returns
        -------
        Finding
            The finding.
        """
        return Finding(self.name, self.severity, problem, reason, remedy, values)


def size_text(size_bytes: float) -> str:
    """Return a size in the largest unit of which it has one.

    Parameters
    ----------
    size_bytes : float
        Bytes.

    Returns
    -------
    str
        A number and its unit.

    Examples
    --------
    >>> from statemark.doctor_findings import size_text
    >>> size_text(512), size_text(1536), size_text(3 * 1024**3)
    ('512 B', '1.5 KiB', '3.0 GiB')
    """
    units = ("KiB", "MiB", "GiB", "TiB")
    if size_bytes < _KIB:
        return f"{size_bytes:.0f} B"
    for unit in units:
        size_bytes /= _KIB
        if size_bytes < _KIB or unit == units[-1]:
            break
    return f"{size_bytes:,.1f} {unit}"
