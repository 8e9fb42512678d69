"""Two sides beside each other, in columns: what demos end in."""

from __future__ import annotations

from collections.abc import Sequence

#: Four texts: a title, both sides, and a remark.
Line = tuple[str, ...]

_SECOND_MS = 1000
_FEW_MS = 10


def layout(lines: Sequence[Line]) -> str:
    """Lay lines out in columns.

    Parameters
    ----------
    lines : sequence of Line
        The first one has the headings.

    Returns
    -------
    str
        Lines of text: numbers to the right, titles and remarks to the left.

    Examples
    --------
    >>> print(layout([("", "a", "b", ""), timed("restart", 1700.0, 850.0)]))
                  a        b
    restart   1.7 s   850 ms   2.0 times as fast
    """
    widths = [max(len(line[i]) for line in lines) for i in range(3)]
    return "\n".join(
        f"{a:<{widths[0]}}   {b:>{widths[1]}}   {c:>{widths[2]}}   {d}".rstrip()
        for a, b, c, d in lines
    )


def timed(title: str, theirs: float, ours: float) -> Line:
    """Return the line of two times.

    Parameters
    ----------
    title : str
        What took the time.
    theirs, ours : float
        Milliseconds.

    Returns
    -------
    Line
        Its remark says how many times as fast ours is.
    """
    ratio = f"{theirs / ours:,.1f} times as fast" if ours > 0 else ""
    return title, duration(theirs), duration(ours), ratio


def duration(ms: float) -> str:
    """Return a time for people.

    Parameters
    ----------
    ms : float
        Milliseconds.

    Returns
    -------
    str
        In milliseconds below a second.

    Examples
    --------
    >>> duration(2.34), duration(297.2), duration(1710)
    ('2.3 ms', '297 ms', '1.7 s')
    """
    if ms < _SECOND_MS:
        return f"{ms:.1f} ms" if ms < _FEW_MS else f"{ms:.0f} ms"
    return f"{ms / _SECOND_MS:,.1f} s"
