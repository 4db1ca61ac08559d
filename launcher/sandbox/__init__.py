"""The embedded cloud: EC2, IAM, SSM, STS and S3 on loopback, with instances that boot, answer SSH and die.

Owns the local stand-in that the AWS adapter drives over HTTP. It knows nothing of runs, budgets or training.
"""

from launcher.sandbox.control import clear_faults, down, inject, interrupt, kill, set_spot_price, status, suspend, up
from launcher.sandbox.faults import FaultPlan
from launcher.sandbox.prices import SpotPrice
from launcher.sandbox.state import InstanceStatus, SandboxInfo, SandboxSettings, SandboxStatus

__all__ = [
    "FaultPlan",
    "InstanceStatus",
    "SandboxInfo",
    "SandboxSettings",
    "SandboxStatus",
    "SpotPrice",
    "clear_faults",
    "down",
    "inject",
    "interrupt",
    "kill",
    "set_spot_price",
    "status",
    "suspend",
    "up",
]
