"""Stands in for `remote.yolov9.train`: the same files, signals and exit codes, and no learning.

Copied into a bundle as `remote/yolov9/train.py`. Its `hyp` steers it: `step_seconds`, `epoch_steps`, once per folder
`crash_at` (a step, with `crash_code`) and `hang_at`; `deaf` (no SIGTERM is heard), `forgets` (it begins with step 0).
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import sys
import time
from pathlib import Path

from remote import protocol
from remote.protocol import TaskPaths, TaskProgress

stopping = False


def main(config_path: str) -> int:
    config = json.loads(Path(config_path).read_text())
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    signal.signal(signal.SIGTERM, signal.SIG_IGN if config.get("hyp", {}).get("deaf") else ask_to_stop)
    if not Path(config["data"]).is_dir():
        print("no data set", file=sys.stderr)  # noqa: T201
        return protocol.EXIT_BAD_INPUT
    return Training(config).run()


def ask_to_stop(_number, _frame):
    global stopping  # noqa: PLW0603
    stopping = True


class Training:
    def __init__(self, config):
        self.paths = TaskPaths(Path(config["output"]))
        self.hyp = config.get("hyp", {})
        self.epochs = config["epochs"]
        self.epoch_steps = int(self.hyp.get("epoch_steps", 5))
        resumes = self.paths.last.exists() and not self.hyp.get("forgets")
        self.resumed = json.loads(self.paths.last.read_text())["step"] if resumes else None
        self.saved = self.resumed
        self.step = self.resumed or 0

    def run(self):
        self.paths.weights.mkdir(parents=True, exist_ok=True)
        print(f"from step {self.step}", flush=True)  # noqa: T201
        self.tell()
        while self.step < self.epochs * self.epoch_steps:
            if stopping:
                self.save()
                return protocol.EXIT_INTERRUPTED
            time.sleep(self.hyp.get("step_seconds", 0.05))
            self.step += 1
            self.tell()
            self.misbehave()
            if self.step % self.epoch_steps == 0:
                self.save()
        protocol.write_text(self.paths.best, f"best at {self.step}")
        return protocol.EXIT_DONE

    def misbehave(self):
        if self.step == self.hyp.get("crash_at") and self.first_time("crashed"):
            os.kill(os.getpid(), signal.SIGKILL) if self.hyp["crash_code"] == -9 else os._exit(self.hyp["crash_code"])
        if self.step == self.hyp.get("hang_at") and self.first_time("hung"):
            time.sleep(600)

    def first_time(self, what):
        mark = self.paths.root / what
        seen = mark.exists()
        mark.touch()
        return not seen

    def tell(self):
        epoch, total = self.step // self.epoch_steps, self.epochs * self.epoch_steps
        progress = TaskProgress(
            epoch,
            self.epochs,
            self.step,
            total,
            10.0,
            resumed_step=self.resumed,
            saved_step=self.saved or 0,
            at=time.time(),
        )
        protocol.write(self.paths.progress, progress)

    def save(self):
        protocol.write_text(self.paths.last, json.dumps({"step": self.step, "pad": "x" * 1000}))
        self.saved = self.step
        self.tell()
        with self.paths.results.open("a") as rows:
            rows.write(f"{self.step // self.epoch_steps},{self.step}\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
