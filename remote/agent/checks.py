"""Whether the machine is what was paid for. Looked at before anything is copied to it."""

from __future__ import annotations

import shutil
from pathlib import Path

from remote.agent.processes import Programs
from remote.protocol import AgentJob, TransferOutcome

NVIDIA_SMI_SECONDS = 60.0
GIB = 2**30
DISK_SHARE = 0.9
"""A file system shows less than the size of its disk."""
COPIES = 2.0
"""The archive and what it holds lie side by side while it is unpacked."""
SPARE_BYTES = GIB // 2
"""For checkpoints and logs, at the least."""


def unfit(job: AgentJob, folder: Path, programs: Programs) -> str | None:
    """What is wrong with this machine, in one sentence, or None."""
    return _wrong_gpus(job.gpus, programs) or _wrong_disk(job, folder)


def missing_pictures(job: AgentJob, staged: TransferOutcome) -> str | None:
    """What is missing of the data set, in one sentence, or None."""
    if job.data.files is None or staged.files >= job.data.files:
        return None
    return f"the staged data set has {staged.files} pictures, {job.data.files} are expected"


def _wrong_gpus(wanted: int, programs: Programs) -> str | None:
    if wanted == 0:
        return None
    try:
        answer = programs.run(["nvidia-smi", "-L"], NVIDIA_SMI_SECONDS)
    except (OSError, TimeoutError) as error:
        return f"the GPUs cannot be listed: {error}"
    if answer.code != 0:
        return f"nvidia-smi -L failed with exit code {answer.code}: {answer.output.strip()[-200:]}"
    found = sum(line.startswith("GPU ") for line in answer.output.splitlines())
    return None if found == wanted else f"nvidia-smi -L lists {found} GPUs, {wanted} are paid for"


def _wrong_disk(job: AgentJob, folder: Path) -> str | None:
    disk = shutil.disk_usage(folder)
    if disk.total < job.disk_gib * DISK_SHARE * GIB:
        return f"the disk has {disk.total / GIB:.1f} GiB, {job.disk_gib:g} GiB were ordered"
    need = (job.data.size or 0) * COPIES + SPARE_BYTES
    if disk.free < need:
        return f"the disk has {disk.free / GIB:.1f} GiB free, the data set needs {need / GIB:.1f} GiB"
    return None
