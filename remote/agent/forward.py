"""The time that limits are held against: no change of the machine's clock sets it back."""

from __future__ import annotations

from remote.clock import Clock


class ForwardClock:
    """The later of two: the wall clock, and its reading when this began plus what has passed since.

    A clock that was behind and is put right counts at once, and one that is set back extends nothing: an error makes
    the machine end too early, never too late.
    """

    def __init__(self, clock: Clock, not_before: float = 0.0) -> None:
        """`not_before`: the last time that an agent of this lease has told."""
        self._clock = clock
        self._offset = max(clock.now(), not_before) - clock.monotonic()

    def now(self) -> float:
        """Unix seconds, UTC."""
        return max(self._clock.now(), self._offset + self._clock.monotonic())

    def monotonic(self) -> float:
        """See `Clock.monotonic`."""
        return self._clock.monotonic()

    def sleep(self, seconds: float) -> None:
        """See `Clock.sleep`."""
        self._clock.sleep(seconds)
