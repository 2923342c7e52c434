"""What the kernel counts of this host's network: TCP segments sent, and those that had to be sent again."""

from __future__ import annotations

from pathlib import Path

TCP_COUNTERS = Path("/proc/net/snmp")


def tcp_segments(path: Path = TCP_COUNTERS) -> tuple[int, int]:
    """TCP segments that this host (its network namespace) has sent, and those sent again; 0, 0 if unknown."""
    try:
        rows = [line.split() for line in path.read_text(encoding="ascii").splitlines()]
        names, values = (row[1:] for row in rows if row and row[0] == "Tcp:")
        counters = dict(zip(names, map(int, values), strict=True))
        return counters["OutSegs"], counters["RetransSegs"]
    except (OSError, ValueError, KeyError):
        return 0, 0
