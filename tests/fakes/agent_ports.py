"""The agent's world without processes or time: a clock that jumps, and programs that follow a plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from remote.agent.processes import Answer
from remote.protocol import Checkpoint

KILLED = -9
CHECKPOINT = Checkpoint("a", 1, 10, "s3://b/k.pt", "ab", 5, 1.0)
"""What the fake sync stores."""


class MachineGone(BaseException):
    """The power-off worked: nothing of the agent runs any more."""


class FakeClock:
    """Time passes in `sleep` only. `at` plans something; `limit` ends a test that would never end.

    `skew` is what somebody did to the wall clock.
    """

    def __init__(self, start: float = 1_000_000.0, limit: float = 20_000.0) -> None:
        self.time = start
        self.start = start
        self.skew = 0.0
        self._limit = start + limit
        self._planned: list[tuple[float, Callable[[], None]]] = []

    def now(self) -> float:
        return self.time + self.skew

    def monotonic(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.time += seconds
        due = [planned for planned in self._planned if planned[0] <= self.time]
        self._planned = [planned for planned in self._planned if planned[0] > self.time]
        for _, action in due:
            action()
        if self.time > self._limit:
            raise AssertionError(f"still running after {self.time - self.start:.0f} s")

    def at(self, seconds: float, action: Callable[[], None]) -> None:
        """Do `action` once `seconds` have passed since the start."""
        self._planned.append((self.start + seconds, action))


class FakeChild:
    """A program that ends by plan, by signal, or never."""

    def __init__(self, clock: FakeClock, name: str) -> None:
        self._clock = clock
        self.name = name
        self.signals: list[str] = []
        self.ends_at: float | None = None
        self.code = 0
        self.swept = False
        """Its family was killed after its own end."""
        self.save_seconds: float | None = 1.0
        """From SIGTERM to exit 75; None: it does not listen."""
        self.on_poll: Callable[[float], None] = lambda _now: None
        self.on_end: Callable[[], None] = lambda: None
        self._ended = False

    def ends_in(self, seconds: float, code: int = 0) -> None:
        self.ends_at, self.code = self._clock.time + seconds, code

    def poll(self) -> int | None:
        if not self._ended:
            self.on_poll(self._clock.time)
        if self.ends_at is None or self._clock.time < self.ends_at:
            return None
        if not self._ended:
            self._ended = True
            self.on_end()
        return self.code

    def terminate(self) -> None:
        self.signals.append("TERM")
        if self.save_seconds is not None:
            self.ends_in(self.save_seconds, 75)

    def dump(self) -> None:
        self.signals.append("USR1")

    def kill(self) -> None:
        if self._ended:
            self.swept = True
        else:
            self.signals.append("KILL")
            self.ends_at, self.code = self._clock.time, KILLED


Plan = Callable[[FakeChild], None]


class FakePrograms:
    """Starts children by plan: `plans[name]` is one plan for each start; the last one repeats."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock
        self.plans: dict[str, list[Plan]] = {}
        self.started: list[FakeChild] = []
        self.argvs: list[list[str]] = []
        self.environments: list[dict[str, str]] = []
        self.commands: list[list[str]] = []
        self.answers: dict[str, Answer | Exception | BaseException] = {}

    def start(self, name: str, argv: Sequence[str], log: Path, environment: Mapping[str, str]) -> FakeChild:
        self.argvs.append(list(argv))
        self.environments.append(dict(environment))
        plans = self.plans.get(name)
        if not plans:
            raise FileNotFoundError(2, "No such file or directory", argv[0])
        child = FakeChild(self._clock, name)
        self.started.append(child)
        (plans.pop(0) if len(plans) > 1 else plans[0])(child)
        return child

    def run(self, argv: Sequence[str], seconds: float) -> Answer:
        self.commands.append(list(argv))
        answer = self.answers.get(argv[0], FileNotFoundError(2, "No such file or directory", argv[0]))
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def names(self) -> list[str]:
        return [child.name for child in self.started]

    def last(self, name: str) -> FakeChild:
        return next(child for child in reversed(self.started) if child.name == name)
