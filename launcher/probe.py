"""How fast this host trains: a short run of the real trainer in its own process, for the embedded cloud's plans."""

from __future__ import annotations

import json
import subprocess
import sys

from launcher.errors import BadInput
from launcher.jobspec import TaskOverride, TrainerOptions
from pricing.throughput import ProbedThroughput

PROBE_SECONDS = 5
_LIMIT_SECONDS = 180
_SPREAD = 2.0
"""Five seconds do not tell what else the host will do: whole runs took up to 1.7 times what their probe promised."""


def probe_host(task: TaskOverride, batch: int, options: TrainerOptions) -> ProbedThroughput:
    """Images per second of this host for one training. Raises BadInput where torch is missing or the probe fails."""
    argv = [
        sys.executable,
        "-P",
        "-m",
        "remote.yolov9.probe",
        "--model",
        str(task.model),
        "--image-size",
        str(task.image_size),
    ]
    argv += ["--batch", str(batch), "--seconds", str(PROBE_SECONDS), "--device", options.device]
    if options.threads is not None:
        argv += ["--threads", str(options.threads)]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=_LIMIT_SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        raise BadInput(
            f"the speed probe of {task.model} took over {_LIMIT_SECONDS} s", hint="take a smaller model"
        ) from error
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise BadInput(
            f"this host cannot train: {last}", hint="install the training parts: pip install 'gpucost[sandbox,train]'"
        )
    answer = json.loads(done.stdout.strip().splitlines()[-1])
    return ProbedThroughput(
        float(answer["images_per_second"]),
        float(answer["val_images_per_second"]),
        _SPREAD,
        f"measured on this host in {PROBE_SECONDS} s, not on the instance type that is billed",
    )
