"""A cloud in memory behind the provider port: machines that boot, refuse, are taken away, die, and go on being billed.

Behaves as EC2 does where that matters: a token makes one machine, new machines are invisible for a while, a spot
machine gets a notice before its end, and a machine powers itself off at the time that its user-data says.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from random import Random

from fake_machine import FakeMachine
from launcher_clock import FakeClock

from launcher.providers.interface import (
    AskedBefore,
    CapacityError,
    EndCause,
    InstanceRef,
    InstanceState,
    InstanceStatus,
    LaunchRequest,
    UnreachableError,
)
from pricing.offers import CapacityType

GROUP = "security group"
_TIMER = re.compile(r"^OnCalendar=(.+) UTC$", re.MULTILINE)


def power_off_at(request: LaunchRequest) -> datetime | None:
    """The time at which the timer in the user-data ends the machine."""
    timer = _TIMER.search(request.user_data)
    return None if timer is None else datetime.strptime(timer[1], "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC)


@dataclass(frozen=True)
class Fault:
    """What the next matching call answers."""

    call: str
    error: Exception
    effect: bool = False
    """The call takes effect first, and then its answer is lost."""
    offer: str | None = None
    """Only launches of this offer key."""


@dataclass
class FakeProvider:
    """A `ComputeProvider`. Times are seconds of the clock."""

    clock: FakeClock
    boot_seconds: float = 20
    """From the launch to `running`."""
    console_seconds: float = 30
    """From the launch until the console shows the host key and SSH answers."""
    visible_seconds: float = 0
    """A new machine is missing from all answers for so long."""
    flickers: Random | None = None
    """Where given, it is in some of them meanwhile, and missing again from the next."""
    end_seconds: float = 10
    """From `terminate` to `gone`."""
    forgets_seconds: float = 3600
    """A machine that is gone stays in the answers for so long, as on EC2."""
    terminates: bool = True
    """False: `terminate` is answered and nothing happens."""
    timers: bool = True
    """False: the timer in the user-data does not work."""
    clocks_ahead: float = 0
    """How far the clocks of new machines are ahead of the true time."""
    down: bool = False
    """No call is answered."""
    machines: list[FakeMachine] = field(default_factory=list)
    resources: set[tuple[str, str, str]] = field(default_factory=set)
    """The security group of each run and the key pair of each of its launchers: region, run id, what it is."""
    calls: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    """Those of the calls that were not answered, or with an error."""
    most_alive: int = 0
    """The most machines that lived at one time."""
    after_call: Callable[[str], None] = lambda _name: None
    on_launch: Callable[[LaunchRequest], None] = lambda _request: None
    """Before a launch is carried out."""
    on_boot: Callable[[FakeMachine], None] = lambda _machine: None
    _faults: list[Fault] = field(default_factory=list)
    _tokens: dict[str, tuple[LaunchRequest, FakeMachine]] = field(default_factory=dict)

    def fail(
        self, call: str, error: Exception, *, times: int = 1, effect: bool = False, offer: str | None = None
    ) -> None:
        """The next `times` matching calls raise `error`; with `effect` they are carried out all the same."""
        self._faults += [Fault(call, error, effect, offer)] * times

    def refuse(self, offer: str, times: int = 1000, error: CapacityError | None = None) -> None:
        """No capacity for this offer; or a QuotaError."""
        error = error or CapacityError("InsufficientInstanceCapacity: none left")
        self.fail("launch", error, times=times, offer=offer)

    # -- the port -----------------------------------------------------------------------------------------------------

    def launch(self, request: LaunchRequest) -> InstanceRef:
        fault = self._called("launch", request.offer.key)
        if fault is not None and not fault.effect:
            raise fault.error
        machine = self._launched(request)
        self.after_call("provider.launch")
        if fault is not None:
            raise fault.error
        return machine.ref

    def describe(self, ref: InstanceRef) -> InstanceStatus:
        self._answer("describe")
        found = [machine for machine in self._visible() if machine.ref == ref]
        if not found:
            return InstanceStatus(ref, InstanceState.GONE, lease_id=None, reason="unknown to the provider")
        return self._status(found[0])

    def find(self, run_id: str, region: str) -> list[InstanceStatus]:
        self._answer("find")
        return [
            self._status(machine)
            for machine in self._visible()
            if machine.request.run_id == run_id and machine.ref.region == region
        ]

    def terminate(self, ref: InstanceRef) -> None:
        self._answer("terminate")
        for machine in self._visible():
            if machine.ref == ref and self.terminates:
                self._end_slowly(machine)
        self.after_call("provider.terminate")

    def clean_up(self, run_id: str, region: str) -> None:
        self._answer("clean_up")
        place = (region, run_id)
        held = any((machine.ref.region, machine.request.run_id) == place for machine in self.alive())
        self.resources -= {one for one in self.resources if one[:2] == place and not (held and one[2] == GROUP)}
        self.after_call("provider.clean_up")

    # -- what the cloud does by itself --------------------------------------------------------------------------------

    def preempt(self, machine: FakeMachine, notice_seconds: float = 120) -> None:
        """A notice, and the end `notice_seconds` later."""
        assert machine.request.offer.capacity_type is CapacityType.SPOT, "only spot machines are taken back"
        if machine.alive:
            machine.give_notice(self.clock.elapsed + notice_seconds)
            self.clock.after(notice_seconds, lambda: self.lose(machine))

    def lose(self, machine: FakeMachine) -> None:
        """Gone at once, by the provider."""
        machine.end(EndCause.PROVIDER, "Server.SpotInstanceTermination: Spot instance termination", tells_time=False)

    def end_by_cloud(self, ref: InstanceRef) -> None:
        """By the stop that the cloud itself holds: to the provider, a call of one of the account's users."""
        for machine in self.machines:
            if machine.ref == ref:
                self._end_slowly(machine)

    def place(self, request: LaunchRequest, number: int) -> FakeMachine:
        """A machine that runs already, from a launch that nobody here saw."""
        machine = FakeMachine(self.clock, request, InstanceRef(request.offer.region, f"i-{number:04d}"), number)
        machine.state = InstanceState.RUNNING
        machine.let_in()
        self.machines.append(machine)
        self._tokens[request.token] = (request, machine)
        return machine

    def alive(self) -> list[FakeMachine]:
        """Every machine that may be billed."""
        return [machine for machine in self.machines if machine.alive]

    def newest(self) -> FakeMachine:
        """The machine made last."""
        return self.machines[-1]

    def _launched(self, request: LaunchRequest) -> FakeMachine:
        known = self._tokens.get(request.token)
        if known is not None:
            if known[0] != request:
                raise AskedBefore("IdempotentParameterMismatch: parameters differ", hint="look for it")
            return known[1]
        self.on_launch(request)
        number = len(self.machines) + 1
        machine = FakeMachine(self.clock, request, InstanceRef(request.offer.region, f"i-{number:04d}"), number)
        machine.clock_ahead = self.clocks_ahead
        self.machines.append(machine)
        for made in (GROUP, request.ssh_public_key):
            self.resources.add((request.offer.region, request.run_id, made))
        self._tokens[request.token] = (request, machine)
        self.most_alive = max(self.most_alive, len(self.alive()))
        self.clock.after(self.boot_seconds, lambda: self._boot(machine))
        self.clock.after(self.console_seconds, machine.let_in)
        return machine

    def _boot(self, machine: FakeMachine) -> None:
        if machine.state is not InstanceState.PENDING:
            return
        machine.state = InstanceState.RUNNING
        deadline = power_off_at(machine.request)
        if deadline is not None and self.timers:
            moment = (deadline - self.clock.start).total_seconds() - machine.clock_ahead
            self.clock.at(moment, machine.power_off)
        self.on_boot(machine)

    def _end_slowly(self, machine: FakeMachine) -> None:
        if machine.state not in {InstanceState.PENDING, InstanceState.RUNNING, InstanceState.STOPPED}:
            return
        machine.begin_end()
        self.clock.after(self.end_seconds, lambda: machine.end(EndCause.USER, "Client.UserInitiatedShutdown"))

    def _visible(self) -> list[FakeMachine]:
        return [
            machine
            for machine in self.machines
            if (self.clock.elapsed >= machine.made_at + self.visible_seconds or self._flickers())
            and (machine.ended_elapsed is None or self.clock.elapsed <= machine.ended_elapsed + self.forgets_seconds)
        ]

    def _flickers(self) -> bool:
        return self.flickers is not None and self.flickers.random() < 0.5

    def _status(self, machine: FakeMachine) -> InstanceStatus:
        self.after_call("provider.look")
        running = machine.state is InstanceState.RUNNING
        return InstanceStatus(
            ref=machine.ref,
            state=machine.state,
            lease_id=machine.request.lease_id,
            address=machine.address if running else None,
            host_key=machine.host_key if running and machine.lets_in else None,
            launched_at=machine.launched_at,
            ended_at=machine.ended_at if machine.tells_time else None,
            reason=machine.reason,
            ended_by=machine.ended_by,
            console_tail="" if machine.lets_in else "booting",
        )

    def _answer(self, call: str) -> None:
        fault = self._called(call, None)
        if fault is not None:
            raise fault.error

    def _called(self, call: str, offer: str | None) -> Fault | None:
        self.calls.append(call)
        if self.down:
            self.failed.append(call)
            raise UnreachableError("no route to the provider")
        for fault in self._faults:
            if fault.call == call and fault.offer in {None, offer}:
                self._faults.remove(fault)
                self.failed.append(call)
                return fault
        return None
