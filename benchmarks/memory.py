"""Memory of this process."""

import resource
import sys
from pathlib import Path

_STATM = Path("/proc/self/statm")


def resident_bytes() -> int:
    """Resident memory now; where the system does not say, its highest so far."""
    if _STATM.exists():
        return int(_STATM.read_text().split()[1]) * resource.getpagesize()
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
