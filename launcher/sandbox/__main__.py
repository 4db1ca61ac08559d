"""`python -m launcher.sandbox HOME`: the daemon. Detaches itself; says `ready` on standard output when it answers."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path

from launcher.sandbox.state import SandboxPaths


def main() -> None:
    """Fork away from the caller, then serve."""
    home = Path(sys.argv[1])
    if os.fork() > 0:
        os._exit(0)
    os.setsid()
    announce = os.dup(1)
    _redirect(SandboxPaths(home).log)
    os.chdir("/")
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    logging.getLogger("botocore").setLevel(logging.WARNING)
    from launcher.sandbox.daemon import serve

    serve(home, announce)


def _redirect(log: Path) -> None:
    null = os.open(os.devnull, os.O_RDONLY)
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(null, 0)
    os.dup2(out, 1)
    os.dup2(out, 2)
    os.close(null)
    os.close(out)


if __name__ == "__main__":
    main()
