"""Memory of this process: the largest resident set so far, without that of the process that started it."""

from __future__ import annotations

import sys
from pathlib import Path

_STATUS = Path("/proc/self/status")


def get_peak_resident_memory() -> int:
    """Largest resident memory of this process so far.

    On Linux `getrusage` would also count the process that started this one: exec keeps its peak.

    Returns:
        Bytes.
    """
    if _STATUS.exists():
        lines = _STATUS.read_text(encoding="ascii", errors="replace").splitlines()
        for line in lines:
            if line.startswith("VmHWM:"):
                return 1024 * int(line.split()[1])
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak
