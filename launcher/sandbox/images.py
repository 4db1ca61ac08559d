"""The machine images of the sandbox, and the public parameters that name them. Pure: names in, ids out.

Names and parameter paths follow the release notes of the AWS Deep Learning AMIs (October 2026 base images).
"""

from __future__ import annotations

from dataclasses import dataclass

PARAMETERS = "/aws/service/deeplearning/ami/"
OWNER = "898082745236"


@dataclass(frozen=True, slots=True)
class Image:
    """One image, the same id in every region of the sandbox."""

    image_id: str
    name: str
    parameter: str


IMAGES = (
    Image(
        "ami-0d1a0000000022040",
        "Deep Learning Base OSS Nvidia Driver GPU AMI (Ubuntu 22.04) 20261016",
        f"{PARAMETERS}x86_64/base-oss-nvidia-driver-gpu-ubuntu-22.04/latest/ami-id",
    ),
    Image(
        "ami-0d1a0000000024040",
        "Deep Learning Base OSS Nvidia Driver GPU AMI (Ubuntu 24.04) 20261016",
        f"{PARAMETERS}x86_64/base-oss-nvidia-driver-gpu-ubuntu-24.04/latest/ami-id",
    ),
    Image(
        "ami-0d1a0000027022040",
        "Deep Learning OSS Nvidia Driver AMI GPU PyTorch 2.7 (Ubuntu 22.04) 20261016",
        f"{PARAMETERS}x86_64/oss-nvidia-driver-gpu-pytorch-2.7-ubuntu-22.04/latest/ami-id",
    ),
    Image(
        "ami-0d1a0000029024040",
        "Deep Learning OSS Nvidia Driver AMI GPU PyTorch 2.9 (Ubuntu 24.04) 20261016",
        f"{PARAMETERS}x86_64/oss-nvidia-driver-gpu-pytorch-2.9-ubuntu-24.04/latest/ami-id",
    ),
)


def image_id(parameter: str) -> str | None:
    """The image that a public parameter names."""
    return next((image.image_id for image in IMAGES if image.parameter == parameter), None)


def under(path: str) -> list[Image]:
    """The images whose parameters lie below a path."""
    return [image for image in IMAGES if image.parameter.startswith(path.rstrip("/") + "/")]


def moto_table() -> list[dict[str, object]]:
    """The images as moto reads them from `MOTO_AMIS_PATH`."""
    return [
        {
            "ami_id": image.image_id,
            "name": image.name,
            "description": image.name,
            "owner_id": OWNER,
            "public": True,
            "virtualization_type": "hvm",
            "architecture": "x86_64",
            "state": "available",
            "image_type": "machine",
            "image_location": f"amazon/{image.name}",
            "hypervisor": "xen",
            "root_device_type": "ebs",
            "root_device_name": "/dev/sda1",
            "sriov": "simple",
            "creation_date": "2026-10-16T00:00:00.000Z",
        }
        for image in IMAGES
    ]
