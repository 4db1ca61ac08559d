"""Signals: a request to stop is remembered and honoured at the next step; a request for stacks is answered at once.

Owns the process's signal handlers; nothing else installs any.
"""

from __future__ import annotations

import faulthandler
import signal
from types import FrameType


class Interrupt:
    """Whether somebody asked this process to stop."""

    def __init__(self) -> None:
        self.requested = False

    def install(self) -> None:
        """SIGTERM and SIGINT ask to stop; SIGUSR1 prints the stacks of all threads to stderr."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._request)
        faulthandler.register(signal.SIGUSR1, all_threads=True)

    @staticmethod
    def outlive_a_request(worker: int) -> None:
        """In a loader's process: a first SIGTERM, which is meant for the training, does not end it; a second one does.

        What asks all processes of a machine to stop would else take the batches from the step that is to be saved.
        """
        del worker
        signal.signal(signal.SIGTERM, lambda _number, _frame: signal.signal(signal.SIGTERM, signal.SIG_DFL))

    def _request(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self.requested = True
