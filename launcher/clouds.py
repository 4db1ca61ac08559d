"""What differs from cloud to cloud, as facts: image, user, limits. No SDK is loaded here."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CloudFacts:
    """How machines of one cloud are reached and how patient to be with them."""

    name: str
    image_parameter: str
    """SSM name of the machine image."""
    user: str
    python: str
    """Interpreter of the training environment, below the machine's root."""
    ssh_port: int
    metadata_base: str
    """Base URL of the metadata service, unless the machine's environment names another."""
    poweroff: tuple[str, ...]
    boot_limit_seconds: float
    """From the launch to a login; then the machine is given up."""
    visible_after_seconds: float
    """A machine just made may be missing from answers for so long, and no launch call is under way longer."""
    install_limit_seconds: float
    """How long a machine that let us in once may be out of reach before its agent is installed."""
    beat_limit_seconds: float
    """An agent writes its status each second; one that stands still for so long is started again."""
    silence_limit_seconds: float
    """A machine whose agent is heard neither by SSH nor in the storage for so long is given up."""
    post_seconds: float
    """Between two copies of the agent's status to the storage."""
    drain_seconds: float
    """How long a stop waits for the agent's last checkpoint and upload."""
    stop_limit_seconds: float
    """How long `terminate` is repeated before the stop is reported as unconfirmed."""
    save_reserve_seconds: float
    """Kept free before the deadline for the last checkpoint and upload."""
    power_off_seconds: float
    """From the deadline to the end of billing, at worst: by the stop that the cloud holds, if that alone is left."""
    deadline_grain_seconds: int
    """What the cloud's timers can tell apart: a deadline is rounded down to it."""
    poll_seconds: float
    linger_seconds: float
    emulated: bool
    """GPU and disk are not what was ordered, and not looked at."""
    by_hand: str
    """The command that ends a machine without gpucost; `{region}` and `{instance_id}` are filled in."""


AWS = CloudFacts(
    name="aws",
    # AWS Deep Learning AMIs, release notes and SSM names read on 2026-11-30: PyTorch at /opt/pytorch, user ubuntu.
    image_parameter="/aws/service/deeplearning/ami/x86_64/oss-nvidia-driver-gpu-pytorch-2.9-ubuntu-24.04/latest/ami-id",
    user="ubuntu",
    python="/opt/pytorch/bin/python",
    ssh_port=22,
    metadata_base="http://169.254.169.254",
    poweroff=("sudo", "-n", "shutdown", "-h", "now"),
    boot_limit_seconds=600,
    visible_after_seconds=90,
    install_limit_seconds=300,
    beat_limit_seconds=120,
    silence_limit_seconds=900,
    post_seconds=30,
    drain_seconds=120,
    stop_limit_seconds=600,
    save_reserve_seconds=120,
    power_off_seconds=120,
    deadline_grain_seconds=60,
    poll_seconds=5,
    linger_seconds=180,
    emulated=False,
    by_hand="aws ec2 terminate-instances --region {region} --instance-ids {instance_id}",
)


def sandbox_facts(ssh_port: int) -> CloudFacts:
    """The embedded cloud: AWS in everything that matters, quicker in everything that waits."""
    return CloudFacts(
        name="sandbox",
        image_parameter=AWS.image_parameter,
        user=AWS.user,
        python=AWS.python,
        ssh_port=ssh_port,
        metadata_base=AWS.metadata_base,
        poweroff=AWS.poweroff,
        boot_limit_seconds=60,
        visible_after_seconds=5,
        install_limit_seconds=40,
        beat_limit_seconds=30,
        silence_limit_seconds=90,
        post_seconds=3,
        drain_seconds=60,
        stop_limit_seconds=30,
        save_reserve_seconds=10,
        power_off_seconds=5,
        deadline_grain_seconds=1,
        poll_seconds=0.5,
        linger_seconds=30,
        emulated=True,
        by_hand="gpucost sandbox down --force",
    )
