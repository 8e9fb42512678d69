"""Processor time: what the measured process used, and what others used meanwhile (Linux)."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Load:
    """
    Processor time since some moment in the past, in seconds over all cores.

    Attributes
    ----------
    own
        Used by one process.
    busy
        Used by all processes.
    capacity
        Used and idle.
    """

    own: float
    busy: float
    capacity: float

    @classmethod
    def now(cls, pid: int) -> Load:
        """Read the counters of the kernel for a process."""
        # The name of a process, in parentheses, may hold spaces: the fields are counted after it.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        own = int(fields[11]) + int(fields[12])
        machine = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
        ticks = [int(field) for field in machine]
        idle = ticks[3] + ticks[4]
        return cls(
            own=own / _TICKS_PER_S,
            busy=(sum(ticks) - idle) / _TICKS_PER_S,
            capacity=sum(ticks) / _TICKS_PER_S,
        )

    def others_since(self, start: Load) -> float:
        """Share of the machine that other processes used since `start`, from 0 to 1."""
        capacity = self.capacity - start.capacity
        others = (self.busy - start.busy) - (self.own - start.own)
        return max(0.0, others / capacity) if capacity else 0.0
