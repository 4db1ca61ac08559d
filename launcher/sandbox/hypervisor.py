"""Makes instances real: one `Guest` for each that EC2's records hold, and the walk through its states.

Told by `ec2` of what callers of the API did; tells it what the API shall show. All methods are called with the
daemon's one lock held, by a request or by the daemon's tick, so nothing here is done by two threads at once.
"""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import Enum
from pathlib import Path

from launcher.sandbox import ec2
from launcher.sandbox.guest import CONSOLE_BYTES, Guest
from launcher.sandbox.imds import Identity
from launcher.sandbox.instances import FROM_INSIDE, INTERRUPTED, LOST, Cause, Launch, State
from launcher.sandbox.objectstore import RoleCredentials
from launcher.sandbox.runner import Runner
from launcher.sandbox.state import InstanceStatus, SandboxSettings

log = logging.getLogger(__name__)


class Refused(Exception):
    """An order that makes no sense for this instance; the message says why."""


class Phase(Enum):
    """What the hypervisor is doing with an instance."""

    BOOTING = "booting"
    UP = "up"
    REBOOTING = "rebooting"
    """On its way down, to boot again; the API says that it is running."""
    ENDING = "ending"
    OFF = "off"
    GONE = "gone"


_RUNNING = (Phase.BOOTING, Phase.UP, Phase.REBOOTING)


@dataclass(frozen=True, slots=True)
class Slot:
    """One instance and where it stands. Times are monotonic but `interruption_at`, which is Unix seconds."""

    launch: Launch
    guest: Guest
    phase: Phase
    since: float
    final: State = State.TERMINATED
    """Where ENDING leads."""
    interruption_at: float | None = None


@dataclass(frozen=True, slots=True)
class Site:
    """What all instances of a sandbox share."""

    folder: Path
    mark: str
    ssh_port: int
    runner: Runner
    settings: SandboxSettings
    mint: Callable[[str], RoleCredentials]
    guest: Callable[[Path, str, Runner], Guest] = Guest
    """What an instance is made of, from its folder, its mark and its user."""


class Hypervisor:
    """All instances of a sandbox."""

    def __init__(self, site: Site, records: ec2.Ec2) -> None:
        self._site = site
        self._records = records
        self._slots: dict[str, Slot] = {}
        self._addresses = _Addresses(site.mark, site.ssh_port)

    def launched(self, launch: Launch) -> None:
        """Make and boot a new instance."""
        site, name = self._site, launch.instance_id
        guest = site.guest(site.folder / name, f"{site.mark}/{name}", site.runner)
        guest.create(launch.user_data)
        self._slots[launch.instance_id] = Slot(launch, guest, Phase.OFF, time.monotonic())
        self._boot(launch.instance_id)

    def started(self, instance_id: str) -> None:
        """Boot a stopped instance again, at a new address."""
        self._boot(instance_id)

    def _boot(self, instance_id: str) -> None:
        slot = self._slots[instance_id]
        launch = slot.launch
        address = self._addresses.take({other.guest.address for other in self._slots.values()})
        identity = Identity(
            instance_id=instance_id,
            instance_type=launch.instance_type,
            image_id=launch.image_id,
            region=launch.region,
            zone=launch.zone,
            account=ec2.ACCOUNT,
            address=address,
            private_address=launch.private_address,
            public_key=launch.public_key,
            role=launch.role,
            user_data=launch.user_data,
        )
        slot.guest.power_on(identity, self._site.ssh_port, self._site.mint)
        self._slots[instance_id] = replace(slot, phase=Phase.BOOTING, since=time.monotonic(), interruption_at=None)
        log.info("%s boots at %s", instance_id, address)

    def rebooted(self, instance_id: str) -> None:
        """Let it shut down in order; the tick boots it again, at the same address."""
        slot = self._slots[instance_id]
        if slot.phase is Phase.UP:
            log.info("%s reboots", instance_id)
            slot.guest.ask_to_end()
            self._slots[instance_id] = replace(slot, phase=Phase.REBOOTING, since=time.monotonic())

    def ended(self, instance_id: str, final: State) -> None:
        """A caller of the API stopped or terminated it; EC2's records say so already."""
        slot = self._slots[instance_id]
        if slot.phase is Phase.OFF:
            self._slots[instance_id] = replace(slot, final=final)
            self._finish(instance_id)
        elif slot.phase is not Phase.ENDING:
            slot.guest.ask_to_end()
            self._slots[instance_id] = replace(slot, phase=Phase.ENDING, since=time.monotonic(), final=final)
        else:
            self._slots[instance_id] = replace(slot, final=final)

    def _end(self, instance_id: str, final: State, cause: Cause) -> None:
        log.info("%s ends: %s", instance_id, cause.code)
        self._records.end(instance_id, final, cause)
        self.ended(instance_id, final)

    def tick(self) -> None:
        """One look at every instance."""
        for instance_id, slot in list(self._slots.items()):
            if slot.phase in (Phase.BOOTING, Phase.UP):
                self._watch(instance_id, slot)
            elif slot.phase is Phase.ENDING and self._is_down(slot):
                self._finish(instance_id)
            elif slot.phase is Phase.REBOOTING and self._is_down(slot):
                slot.guest.restart()
                self._slots[instance_id] = replace(slot, phase=Phase.UP, since=time.monotonic())

    def _is_down(self, slot: Slot) -> bool:
        """Whether what was asked to end has ended, or has had its time to do so."""
        grace_over = time.monotonic() - slot.since >= self._site.settings.shutdown_grace_seconds
        return grace_over or not slot.guest.living()

    def _watch(self, instance_id: str, slot: Slot) -> None:
        now = time.time()
        if slot.interruption_at is not None and slot.interruption_at <= now:
            self._end(instance_id, State.TERMINATED, INTERRUPTED)
        elif slot.guest.shutdown_due(now):
            self._end(instance_id, self._records.shutdown_behavior(instance_id), FROM_INSIDE)
        elif slot.guest.crashed():
            log.error("%s: its machine program ended; console: %s", instance_id, slot.guest.console()[-2000:].decode())
            self._end(instance_id, State.TERMINATED, LOST)
        elif slot.phase is Phase.BOOTING and time.monotonic() - slot.since >= self._site.settings.boot_seconds:
            address = slot.guest.address
            if address is not None:
                self._records.give_address(instance_id, address)
            self._records.show(instance_id, State.RUNNING)
            self._slots[instance_id] = replace(slot, phase=Phase.UP)

    def _finish(self, instance_id: str) -> None:
        slot = self._slots[instance_id]
        slot.guest.power_off()
        if slot.final is State.TERMINATED:
            slot.guest.remove()
        self._records.show(instance_id, slot.final)
        phase = Phase.GONE if slot.final is State.TERMINATED else Phase.OFF
        self._slots[instance_id] = replace(slot, phase=phase, since=time.monotonic(), interruption_at=None)
        log.info("%s is %s", instance_id, slot.final.label)

    def interrupt(self, instance_id: str | None, notice_seconds: float) -> list[str]:
        """Announce the end of one spot instance, or of all that run. Raises Refused. Returns their ids."""
        chosen = [self._running_spot(instance_id)] if instance_id is not None else self._all_running_spot()
        at = time.time() + notice_seconds
        for one in chosen:
            slot = self._slots[one]
            slot.guest.notify(datetime.now(UTC) + timedelta(seconds=notice_seconds))
            self._records.notice(one)
            self._slots[one] = replace(slot, interruption_at=at)
            log.info("%s will be interrupted in %.1f s", one, notice_seconds)
        return chosen

    def _all_running_spot(self) -> list[str]:
        found = [
            one
            for one, slot in self._slots.items()
            if slot.launch.market == "spot" and slot.phase in _RUNNING and slot.interruption_at is None
        ]
        if not found:
            raise Refused("no spot instance is running")
        return found

    def _running_spot(self, instance_id: str) -> str:
        slot = self._running(instance_id)
        if slot.launch.market != "spot":
            raise Refused(f"{instance_id} is an on-demand instance: only spot instances are interrupted")
        if slot.interruption_at is not None:
            raise Refused(f"{instance_id} has its interruption notice already")
        return instance_id

    def _running(self, instance_id: str) -> Slot:
        slot = self._slots.get(instance_id)
        if slot is None:
            raise Refused(f"{instance_id} is not an instance of this sandbox")
        if slot.phase not in _RUNNING:
            raise Refused(f"{instance_id} does not run: it is {self._records.state(instance_id)}")
        return slot

    def kill(self, instance_id: str) -> None:
        """The instance is gone at once, without notice and without SIGTERM. Raises Refused."""
        slot = self._running(instance_id)
        cause = INTERRUPTED if slot.launch.market == "spot" else LOST
        self._records.end(instance_id, State.TERMINATED, cause)
        self._slots[instance_id] = replace(slot, phase=Phase.ENDING, final=State.TERMINATED)
        self._finish(instance_id)

    def end_all(self) -> None:
        """The sandbox goes: every instance is gone at once."""
        for instance_id, slot in list(self._slots.items()):
            if slot.phase is not Phase.GONE:
                slot.guest.power_off()
                slot.guest.remove()
                self._slots[instance_id] = replace(slot, phase=Phase.GONE)

    def live(self) -> int:
        """How many instances run, or are on their way up or down."""
        return sum(slot.phase not in (Phase.OFF, Phase.GONE) for slot in self._slots.values())

    def console(self, instance_id: str) -> bytes:
        """The last part of an instance's console; empty for one that is unknown."""
        slot = self._slots.get(instance_id)
        return b"" if slot is None else slot.guest.console()[-CONSOLE_BYTES:]

    def overview(self) -> list[InstanceStatus]:
        """All instances, the gone ones too."""
        return [
            InstanceStatus(
                instance_id=instance_id,
                instance_type=slot.launch.instance_type,
                region=slot.launch.region,
                zone=slot.launch.zone,
                market=slot.launch.market,
                state=self._records.state(instance_id),
                address=slot.guest.address,
                processes=len(slot.guest.living()) if slot.phase not in (Phase.GONE, Phase.OFF) else 0,
                interruption_at=slot.interruption_at,
            )
            for instance_id, slot in self._slots.items()
        ]


class _Addresses:
    """Hands out loopback addresses, one for each instance, from a block that depends on the sandbox."""

    def __init__(self, mark: str, ssh_port: int) -> None:
        self._block = 1 + int(mark[:2], 16) % 250, int(mark[2:4], 16)
        self._port = ssh_port
        self._next = 0

    def take(self, used: set[str | None]) -> str:
        """An address that nobody uses at the SSH port. Raises Refused when there is none."""
        for _ in range(64 * 250):
            self._next += 1
            first, second = self._block
            address = f"127.{first}.{(second + self._next // 250) % 256}.{2 + self._next % 250}"
            if address not in used and _free(address, self._port):
                return address
        raise Refused("no loopback address is free")


def _free(address: str, port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError:
            return False
    return True
