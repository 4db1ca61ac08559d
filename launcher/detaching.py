"""A launcher in the background: a process of its own session that drives one run and writes what it says to a file.

If it dies, the agent trains on to its deadline, and `gpucost wait` or `resume` takes the run up.
"""

from __future__ import annotations

import os
import subprocess
import sys

from launcher.context import Context
from launcher.errors import BadInput
from launcher.history import load_run
from launcher.run import State

_START_SECONDS = 60.0
_LOOK_SECONDS = 0.1


def supervise(run_id: str, context: Context) -> int:
    """Start a launcher for an unfinished run; its process id once it holds the run. Raises BadInput where it does not.

    It outlives this process and its terminal.
    """
    folder = context.home.run(run_id)
    with folder.supervisor_log.open("ab") as said:
        child = subprocess.Popen(
            [sys.executable, "-P", "-m", "launcher", "resume", run_id],  # -P: nothing of the user's folder is imported
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            start_new_session=True,
            cwd=context.work_dir,
            env={**os.environ, "GPUCOST_HOME": str(context.home.root)},
        )
    give_up = context.clock.monotonic() + _START_SECONDS
    while context.clock.monotonic() < give_up and child.poll() is None:
        if folder.journal.writer() == child.pid:
            return child.pid
        context.clock.sleep(_LOOK_SECONDS)
    if load_run(run_id, context).state is State.SETTLED:
        return child.pid  # over before it was looked at
    raise BadInput(
        f"the launcher of {run_id} did not start; {folder.supervisor_log} has its words",
        hint=f"drive the run from here: `gpucost resume {run_id}`",
    )
