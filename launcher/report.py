"""What a run tells the outside while it goes on: values, handed to one function. Renders nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal

from launcher.events import Event
from launcher.run import Run
from remote.protocol import AgentStatus, printable


@dataclass(frozen=True, slots=True)
class Happened:
    """An event is in the journal, and the run is what it is after it."""

    event: Event
    run: Run


@dataclass(frozen=True, slots=True)
class Beat:
    """The agent was heard."""

    run: Run
    status: AgentStatus
    usd: Decimal
    """Spent so far, all leases, if the machine ended now."""


@dataclass(frozen=True, slots=True)
class Note:
    """Something worth a line: a wait, a retry, a warning."""

    text: str

    def __post_init__(self) -> None:
        """Much of it was said by a machine or a service: nothing in it may drive the terminal."""
        object.__setattr__(self, "text", printable(self.text))


Update = Happened | Beat | Note
Reporter = Callable[[Update], None]
