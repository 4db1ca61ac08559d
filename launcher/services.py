"""Everything a step may touch, in one value. The one place where adapters are chosen is `launcher.wiring`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from launcher.bundle import Bundle
from launcher.clock import Clock
from launcher.clouds import CloudFacts
from launcher.events import Selection
from launcher.home import RunFolder
from launcher.interrupts import Interrupts
from launcher.machine import Machine
from launcher.mirror import Mirror
from launcher.providers.interface import CloudTimer, ComputeProvider, PriceFeed
from launcher.report import Reporter
from launcher.run import Run
from launcher.ssh import SshConnector
from launcher.storage.interface import ObjectStore
from pricing.cost import Rates
from remote.protocol import StorageSpec


@dataclass(slots=True)
class Services:
    """Ports and facts of one run."""

    provider: ComputeProvider
    timer: CloudTimer
    prices: PriceFeed
    facts: CloudFacts
    store: ObjectStore
    mirror: Mirror
    """The copy of the run's journal in that store."""
    storage: StorageSpec
    """The same store, as the machine is told of it."""
    credentials: Callable[[float], bytes | None]
    """Contents of the machine's credentials file, good for so many seconds at least; None where it has a role."""
    connect: SshConnector
    bundle: Callable[[], Bundle]
    rates: Rates
    replan: Callable[[Run], Selection]
    """The best next machine for what is left to do. Raises NoOfferFits."""
    folder: RunFolder
    clock: Clock
    report: Reporter
    interrupts: Interrupts
    price_due_at: float = 0.0
    """When the machine's price is asked for next, on the monotonic clock: steps come and go more often."""
    agent_said: str = ""
    """What it last found worth telling."""
    agent_knows: str = ""
    """The lease, cap and prices that its agent was told of last."""
    _machine: Machine | None = field(default=None, repr=False)

    def machine(self, run: Run) -> Machine:
        """The connection to the open lease's machine, kept between steps."""
        if run.lease is None:
            raise ValueError("there is no open lease")
        folder = run.lease.lease_id
        if self._machine is None or self._machine.folder.name != folder:
            self.hang_up()
            self._machine = Machine(run.lease, self.facts, self.folder.private_key, self.connect)
        return self._machine

    def hang_up(self) -> None:
        """Drop the connection."""
        if self._machine is not None:
            self._machine.close()
            self._machine = None
