"""Does a clock that remesh goes by jump? Found by comparing each with the process's own steady one.

Used by the trail's keeper, which writes down what is found: whoever reads the times in the trail has to know.
"""

import time
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Final, NamedTuple

JUMP_SECONDS: Final = 5.0
"""More than a time service slews in between two looks, or than a clock is read wrong by on a slow network."""

QUIET_SECONDS: Final = 60.0
"""Of one clock, after a jump: several API servers behind one address may disagree, and answer in turn."""

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
        self._quiet: dict[str, float] = {}  # monotonic time until which a jump is not told of yet

    def look(self) -> list[Jump]:
        """What jumped since the last look. Raises what a reading raises; nothing is lost by that."""
        found = (self._look_at(whose, read) for whose, read in self._readings.items())
        return [jump for jump in found if jump is not None]

    def _look_at(self, whose: str, read: Reading) -> Jump | None:
        ahead, now = read().timestamp() - self._monotonic(), self._monotonic()
        jump = Jump(whose, ahead - self._ahead.get(whose, ahead))
        if abs(jump.seconds) <= JUMP_SECONDS:
            self._ahead[whose] = ahead
            return None
        if now < self._quiet.get(whose, now):
            return None  # told of then, if it still differs from what was told last
        self._ahead[whose], self._quiet[whose] = ahead, now + QUIET_SECONDS
        return jump
