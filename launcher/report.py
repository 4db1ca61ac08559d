"""What a run tells the outside while it goes on: values, handed to one function. Renders nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal

from launcher.events import Event
from launcher.run import Run
from remote.protocol import AgentStatus


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


Update = Happened | Beat | Note
Reporter = Callable[[Update], None]
