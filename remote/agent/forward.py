"""The time that limits are held against: no change of the machine's clock sets it back."""

from __future__ import annotations

from remote.clock import Clock
from remote.protocol import AgentJob, AgentStatus


def not_before(job: AgentJob, last: AgentStatus | None) -> float:
    """A time that is over, whatever the clock says: the machine's launch, and the last beat of an agent before."""
    return max(job.launched_at, 0.0 if last is None else last.at)


class ForwardClock:
    """The later of two: the wall clock, and its reading when this began plus what has passed since.

    A clock that was behind and is put right counts at once, and one that is set back extends nothing: an error makes
    the machine end too early, never too late.
    """

    def __init__(self, clock: Clock, not_before: float = 0.0) -> None:
        """`not_before`: see the function."""
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
