"""Drills on fake VMs: networks that are cut, power that fails, timers that really power a machine off."""

from __future__ import annotations

import time

from cli_process import Launcher

from drills.result import Drill
from drills.scene import Scene
from drills.vm.ground import Vms
from launcher import sandbox
from launcher.sandbox import FaultPlan
from launcher.sandbox.state import InstanceStatus

EPOCHS = 60
ENDLESS = 2000
_QUICK_PLAN = "4000"
"""Images per second that make the plan of an endless training fit a deadline."""
DEADLINE_SECONDS = 110
_LATE_SECONDS = 20.0
"""The machine's own stops may come so much later than the deadline: a beat, and an orderly shutdown."""
_CLOUD_LATE_SECONDS = 200.0
"""The cloud's own stop comes after the machine's had their chance, and it counts in minutes."""


def _vms(scene: Scene) -> Vms:
    assert isinstance(scene.ground, Vms)
    return scene.ground


def _begin(scene: Scene, epochs: int = EPOCHS) -> Launcher:
    launcher = scene.train(epochs=epochs)
    scene.wait_training()
    return launcher


def cut_and_healed(scene: Scene) -> None:
    """The network of the machine is gone for 30 s; nobody ends anything."""
    launcher = _begin(scene)
    network = _vms(scene).network(scene.truth.instance())
    before = scene.progress.reached()
    scene.strike(network.cut)
    time.sleep(30)
    trained = scene.progress.reached() - before
    network.heal()
    scene.remark(f"{trained} steps while cut off")
    if trained == 0:
        scene.faults.append("training stood still while the network was cut")
    scene.expect_code(launcher, 0)


def cut_for_good(scene: Scene) -> None:
    """The network never comes back: the machine ends itself at its deadline, and the launcher learns it by asking."""
    launcher = _begin_with_deadline(scene)
    scene.strike(_vms(scene).network(scene.truth.instance()).cut)
    _expect_end_at_deadline(scene, _LATE_SECONDS)
    scene.expect_code(launcher, 4)


def cut_power(scene: Scene) -> None:
    """The host of the machine fails; the run goes on elsewhere by itself."""
    launcher = _begin(scene)
    machine = scene.truth.instance()
    scene.strike(lambda: _vms(scene).cut_power(machine))
    scene.expect_code(launcher, 0)


def cut_power_without_launcher(scene: Scene) -> None:
    """The launcher is killed, then the host of the machine fails; `resume` finds out and goes on elsewhere."""
    launcher = _begin(scene)
    machine = scene.truth.instance()
    _kill_launcher(scene, launcher)
    _vms(scene).cut_power(machine)
    scene.command("resume")


def notice(scene: Scene) -> None:
    """A spot notice of 30 s on the real metadata address; the run goes on elsewhere by itself."""
    launcher = _begin(scene)
    machine = scene.truth.instance().instance_id
    scene.strike(lambda: sandbox.interrupt(scene.home, machine, 30.0))
    scene.expect_code(launcher, 0)


def taken_without_notice(scene: Scene) -> None:
    """The provider takes the machine back and nobody was told: it only shuts down. The run goes on elsewhere."""
    launcher = _begin(scene)
    machine = scene.truth.instance().instance_id
    scene.strike(lambda: sandbox.interrupt(scene.home, machine, 0.0))
    scene.expect_code(launcher, 0)


def slow_link(scene: Scene) -> None:
    """The machine's link falls to 40 Mbit/s in the middle of the training and stays there."""
    launcher = _begin(scene)
    network = _vms(scene).network(scene.truth.instance())
    scene.strike(lambda: network.slow("40mbit"))
    scene.expect_code(launcher, 0)


def powered_off_inside(scene: Scene) -> None:
    """Somebody runs `shutdown -h now` on the machine: the agent saves in the time that systemd leaves it."""
    launcher = _begin(scene)
    machine = scene.truth.instance()
    scene.strike(lambda: _later_inside(scene, machine, "shutdown", "-h", "now"))
    gone_after = _seconds_until_ended(scene, machine, 150)
    scene.remark(f"off after {gone_after:.0f} s")
    if gone_after > 60:
        scene.faults.append(f"the machine was paid for {gone_after:.0f} s after it was told to power off")
    scene.expect_code(launcher, None)
    if scene.count("Settled") and scene.records()[-1]["event"].get("outcome") != "done":
        scene.command("resume")


def rebooted(scene: Scene) -> None:
    """The machine reboots in the middle of the training; the launcher starts the agent again."""
    launcher = _begin(scene)
    machine = scene.truth.instance()
    scene.strike(lambda: _later_inside(scene, machine, "systemctl", "reboot"))
    scene.expect_code(launcher, 0)


# -- the four stops, each with the others disabled ---------------------------------------------------------------------


def stop_by_launcher(scene: Scene) -> None:
    """Only the launcher is left to end the machine at its deadline."""
    _refuse_schedules(scene)
    launcher = _begin_with_deadline(scene)
    machine = scene.truth.instance()
    _disarm_timer(scene, machine)
    scene.strike(lambda: _silence_agent(scene, machine))
    _expect_end_at_deadline(scene, 60.0, reason="Client.UserInitiatedShutdown")
    scene.expect_code(launcher, 4)


def stop_by_agent(scene: Scene) -> None:
    """Only the agent is left to end the machine at its deadline."""
    _refuse_schedules(scene)
    launcher = _begin_with_deadline(scene)
    _disarm_timer(scene, scene.truth.instance())
    _kill_launcher(scene, launcher)
    _expect_end_at_deadline(scene, _LATE_SECONDS, reason="Client.InstanceInitiatedShutdown")
    scene.command("stop", code=None)


def stop_by_timer(scene: Scene) -> None:
    """Only the timer of user-data is left to end the machine at its deadline."""
    _refuse_schedules(scene)
    launcher = _begin_with_deadline(scene)
    _kill_launcher(scene, launcher)
    _silence_agent(scene, scene.truth.instance())
    _expect_end_at_deadline(scene, _LATE_SECONDS, reason="Client.InstanceInitiatedShutdown")
    scene.command("stop", code=None)


def stop_by_timer_after_reboot(scene: Scene) -> None:
    """The same, and the machine has rebooted since its timer was armed."""
    _refuse_schedules(scene)
    launcher = _begin_with_deadline(scene)
    machine = scene.truth.instance()
    _kill_launcher(scene, launcher)
    _silence_agent(scene, machine)
    boot = _boot_id(scene, machine)
    _later_inside(scene, machine, "systemctl", "reboot")
    scene.wait_for("the reboot", lambda: _boot_id(scene, machine) not in {boot, ""}, 60)
    _expect_end_at_deadline(scene, _LATE_SECONDS, reason="Client.InstanceInitiatedShutdown")
    scene.command("stop", code=None)


def stop_by_cloud(scene: Scene) -> None:
    """Only the schedule that the cloud holds is left to end the machine."""
    launcher = _begin_with_deadline(scene)
    machine = scene.truth.instance()
    _disarm_timer(scene, machine)
    _kill_launcher(scene, launcher)
    _silence_agent(scene, machine)
    _expect_end_at_deadline(scene, _CLOUD_LATE_SECONDS, reason="Client.UserInitiatedShutdown")
    scene.command("stop", code=None)


def _begin_with_deadline(scene: Scene) -> Launcher:
    launcher = scene.train("--deadline", f"{DEADLINE_SECONDS}s", epochs=ENDLESS, speed=_QUICK_PLAN)
    scene.wait_training()
    return launcher


def _refuse_schedules(scene: Scene) -> None:
    denied = FaultPlan("CreateSchedule.*", code="AccessDeniedException", status=403, times=1000)
    sandbox.inject(scene.home, denied)


def _disarm_timer(scene: Scene, machine: InstanceStatus) -> None:
    _vms(scene).inside(machine, "systemctl", "disable", "--now", "gpucost-deadline.timer")


def _kill_launcher(scene: Scene, launcher: Launcher) -> None:
    scene.strike(launcher.process.kill)
    scene.expect_code(launcher, None)


def _silence_agent(scene: Scene, machine: InstanceStatus) -> None:
    """End agent, trainer and transfer at once, and keep a launcher from starting them again."""
    _vms(scene).inside(machine, "chmod", "-x", "/usr/local/bin/python3")
    for words in ("remote.agent", "remote.yolov9", "remote.transfer"):
        scene.ground.kill(machine, words)


def _later_inside(scene: Scene, machine: InstanceStatus, *argv: str) -> None:
    """A command that takes the VM down, and us with it if we waited."""
    _vms(scene).inside(machine, "systemd-run", "--no-block", *argv)


def _boot_id(scene: Scene, machine: InstanceStatus) -> str:
    """What tells one boot from another: the id of the VM's first process; empty while there is none."""
    try:
        return _vms(scene).inside(machine, "systemctl", "show", "-p", "UserspaceTimestampMonotonic").strip()
    except (RuntimeError, StopIteration, OSError):
        return ""


def _seconds_until_ended(scene: Scene, machine: InstanceStatus, seconds: float) -> float:
    started = time.monotonic()

    def ended() -> bool:
        states = {one.instance_id: one.state for one in scene.truth.instances()}
        return states[machine.instance_id] in {"terminated", "shutting-down"}

    scene.wait_for("the end of the machine", ended, seconds)
    return time.monotonic() - started


def _expect_end_at_deadline(scene: Scene, late_seconds: float, reason: str | None = None) -> None:
    deadline, machine = scene.deadline(), scene.truth.instance()
    _seconds_until_ended(scene, machine, deadline - time.time() + late_seconds + 90)
    late = time.time() - deadline
    scene.remark(f"off {late:+.0f} s from the deadline")
    if late > late_seconds:
        scene.faults.append(f"the machine ended {late:.0f} s after its deadline")
    found = scene.truth.end_reason(machine)
    if reason is not None and found != reason:
        scene.faults.append(f"the machine ended by {found}, not by {reason}")


DRILLS = (
    Drill("vm/cut-healed", "network cut for 30 s while training", cut_and_healed),
    Drill("vm/cut-for-good", "network cut while training, never healed", cut_for_good),
    Drill("vm/power", "power cut while training", cut_power),
    Drill("vm/power-no-launcher", "launcher killed, then power cut; resume", cut_power_without_launcher),
    Drill("vm/notice", "spot notice of 30 s while training", notice),
    Drill("vm/no-notice", "spot machine taken back without a notice", taken_without_notice),
    Drill("vm/slow-link", "link at 40 Mbit/s from the first checkpoint on", slow_link),
    Drill("vm/off-inside", "`shutdown -h now` on the machine while training", powered_off_inside),
    Drill("vm/reboot", "machine rebooted while training", rebooted),
    Drill("vm/stop-launcher", "agent killed, timer and schedule off: launcher alone", stop_by_launcher),
    Drill("vm/stop-agent", "launcher killed, timer and schedule off: agent alone", stop_by_agent),
    Drill("vm/stop-timer", "launcher and agent killed, schedule off: timer alone", stop_by_timer),
    Drill("vm/stop-timer-reboot", "the same, and the machine rebooted", stop_by_timer_after_reboot),
    Drill("vm/stop-cloud", "launcher and agent killed, timer off: schedule alone", stop_by_cloud),
)
