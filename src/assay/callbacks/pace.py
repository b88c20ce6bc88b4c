"""How fast something goes, from the last few seconds of it."""

from __future__ import annotations

from collections import deque
from typing import final


@final
class Pace:
    """Steps a second over a sliding window.

    Args:
        window: Length of the window in seconds; two samples are always kept, however far apart.

    >>> pace = Pace(window=10.0)
    >>> pace.restart(now=100.0, done=0)
    >>> pace.sample(now=102.0, done=50)
    >>> pace.steps_per_second, pace.seconds_for(100)
    (25.0, 4.0)
    """

    def __init__(self, window: float = 5.0) -> None:
        self._window = window
        self._samples: deque[tuple[float, int]] = deque()

    def restart(self, now: float, done: int) -> None:
        """Forget what was: after a pause the old samples say nothing.

        Args:
            now: Seconds on any steady clock.
            done: Steps done by then.
        """
        self._samples.clear()
        self._samples.append((now, done))

    def sample(self, now: float, done: int) -> None:
        """Take note of how far things are.

        Args:
            now: Seconds on the same clock.
            done: Steps done by then.
        """
        samples = self._samples
        samples.append((now, done))
        while len(samples) > 2 and now - samples[1][0] >= self._window:
            samples.popleft()

    @property
    def steps_per_second(self) -> float | None:
        """Steps a second, None as long as nothing is known."""
        if len(self._samples) < 2:
            return None
        (first, before), (last, after) = self._samples[0], self._samples[-1]
        return (after - before) / (last - first) if last > first and after > before else None

    def seconds_for(self, steps: float) -> float | None:
        """Time that so many more steps take, None as long as nothing is known.

        Args:
            steps: Steps to go.
        """
        rate = self.steps_per_second
        return None if rate is None else steps / rate
