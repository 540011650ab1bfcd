"""CPU time as the kernel accounts it: of a server's processes, and of the host."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

_TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")


def session_processes(session: int) -> list[int]:
    """The processes of one session (sixth field of /proc/PID/stat): a server and what it forked."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            # The name in brackets may hold anything; behind its last bracket come state, parent, group, session.
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[3]) == session:
            found.append(int(entry.name))
    return found


def cpu_ns(processes: list[int]) -> int:
    """Time on a CPU of all threads of these processes (first field of /proc/PID/task/TID/schedstat)."""
    total = 0
    for process in processes:
        for schedstat in Path(f"/proc/{process}/task").glob("*/schedstat"):
            total += int(schedstat.read_text().split()[0])
    return total


@dataclass(frozen=True, slots=True)
class HostTimes:
    """Of all cores together, since boot (/proc/stat, counted in ticks)."""

    softirq_ns: int
    steal_ns: int

    @classmethod
    def read(cls) -> HostTimes:
        """Now."""
        with Path("/proc/stat").open() as stat:
            fields = stat.readline().split()
        return cls(softirq_ns=int(fields[7]) * _TICK_NS, steal_ns=int(fields[8]) * _TICK_NS)

    def since(self, earlier: HostTimes) -> HostTimes:
        """From then to here."""
        return HostTimes(self.softirq_ns - earlier.softirq_ns, self.steal_ns - earlier.steal_ns)
