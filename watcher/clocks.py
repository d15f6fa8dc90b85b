"""Does a clock that remesh goes by jump? Found by comparing each with the process's own steady one.

Used by the trail's keeper, which writes down what is found: whoever reads the times in the trail has to know.
"""

import time
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Final, NamedTuple

JUMP_SECONDS: Final = 5.0
"""More than a time service slews in between two looks, or than a clock is read wrong by on a slow network."""

Reading = Callable[[], datetime]


class Jump(NamedTuple):
    """What one clock did since the last look."""

    whose: str
    seconds: float  # forward; below 0: back

    def __str__(self) -> str:
        return f"{self.whose} clock went {'forward' if self.seconds > 0 else 'back'} by {abs(self.seconds):.0f} s"


class Clocks:
    """Some clocks, by whose they are. For one thread."""

    def __init__(self, readings: Mapping[str, Reading], monotonic: Callable[[], float] = time.monotonic) -> None:
        self._readings = readings
        self._monotonic = monotonic
        self._ahead: dict[str, float] = {}

    def look(self) -> list[Jump]:
        """What jumped since the last look. Raises what a reading raises; nothing is lost by that."""
        ahead = {whose: read().timestamp() - self._monotonic() for whose, read in self._readings.items()}
        known, self._ahead = self._ahead, ahead
        moved = (Jump(whose, now - known.get(whose, now)) for whose, now in ahead.items())
        return [jump for jump in moved if abs(jump.seconds) > JUMP_SECONDS]
