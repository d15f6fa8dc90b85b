"""Answers that are believed for a moment, and asked for by one thread at a time.

Repairs of one owner's pods come in bursts and ask the same: a dry run of its template, the list of its pods. Used by
the `workers.recreate` modules.
"""

import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

T = TypeVar("T")

FORGOTTEN_SECONDS: Final = 60.0  # nobody believes an answer for longer, so it need not be kept
DEAR_SECONDS: Final = 2.0  # the most that an answer is believed because it was dear


@dataclass(slots=True)
class _Answer:
    lock: threading.Lock = field(default_factory=threading.Lock)
    at: float | None = None  # monotonic, when it came; None: not asked yet, or it failed
    took: float = 0.0  # seconds that it took to come
    value: Any = None


class Recent:
    """The latest answers. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._answers: dict[tuple[Hashable, ...], _Answer] = {}

    def recall(
        self,
        key: tuple[Hashable, ...],
        seconds: float,
        ask: Callable[[], T],
        monotonic: Callable[[], float],
        *,
        lasts: Callable[[T], bool] = lambda _: True,
        dear: Callable[[T], float] = lambda _: 0.0,
    ) -> T:
        """The answer of at most `seconds` ago, or a new one. Its age counts from when it came. Raises what `ask` does.

        Who comes while another thread asks waits for that answer. One that does not last is believed by those who
        waited for it, and by nobody after them. One that took long is believed for as many times as long as it took as
        `dear` says of it, for 2 s at most: so that asking never takes more than its share of the server's time.
        """
        came = monotonic()
        answer = self._answer(key, came)
        with answer.lock:
            began = monotonic()
            times = 0.0 if answer.at is None else dear(answer.value)
            believed = max(seconds, min(DEAR_SECONDS, times * answer.took))
            if not self._serves(answer, came, began - believed, lasts):
                answer.at = None
                answer.value = ask()
                answer.at = monotonic()
                answer.took = answer.at - began
            value: T = answer.value
            return value

    @staticmethod
    def _serves(answer: _Answer, came: float, oldest: float, lasts: Callable[[Any], bool]) -> bool:
        if answer.at is None:
            return False
        return answer.at > came or (answer.at >= oldest and lasts(answer.value))

    def forget(self, kind: str) -> None:
        """Believe no answer whose key begins with `kind` any longer."""
        with self._lock:
            for key in [key for key in self._answers if key[0] == kind]:
                del self._answers[key]

    def _answer(self, key: tuple[Hashable, ...], now: float) -> _Answer:
        with self._lock:
            stale = [each for each, held in self._answers.items() if _stale(held, now)]
            for each in stale:
                del self._answers[each]
            return self._answers.setdefault(key, _Answer())


def _stale(answer: _Answer, now: float) -> bool:
    return answer.at is not None and now - answer.at > FORGOTTEN_SECONDS and not answer.lock.locked()
