"""The sandbox's daemon: puts the parts together, keeps them going, and takes everything away again.

Everything that it starts carries its mark; everything that it writes lies in the state folder. It ends on `down`, on
SIGTERM or SIGINT, or when nobody has used it for the idle time.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import shutil
import signal
import socket
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from launcher.sandbox import processes, runner, state
from launcher.sandbox.guest import Guest
from launcher.sandbox.objectstore import ObjectStore
from launcher.sandbox.prices import PriceHistory, PriceList
from launcher.sandbox.s3proxy import StoreProxy
from launcher.sandbox.state import SandboxInfo, SandboxPaths, SandboxSettings, SandboxStatus

log = logging.getLogger(__name__)

TICK_SECONDS = 0.1
PRICES_AGE = timedelta(hours=6)
"""The prices that a sandbox starts with have been in force for so long."""


def serve(home: Path, announce: int, kind: type[Daemon] | None = None) -> None:
    """Run the sandbox of `home` until it ends; one line goes to the descriptor `announce` when it is ready.

    `kind` is for a sandbox on other ground than loopback.
    """
    paths = SandboxPaths(home)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    processes.become_subreaper()
    daemon = (kind or Daemon)(paths, stop)
    try:
        daemon.start()
        os.write(announce, b"ready\n")
        os.close(announce)
        daemon.keep()
    finally:
        daemon.end()


class Daemon:
    """One life of a sandbox."""

    host = "127.0.0.1"
    """Where the object store answers: an address that the instances reach."""
    guest: type[Guest] = Guest
    """What an instance is made of."""

    def __init__(self, paths: SandboxPaths, stop: threading.Event) -> None:
        self._paths = paths
        self._stop = stop
        self._lock = threading.RLock()
        self._started_at = time.time()
        text = paths.settings.read_text(encoding="utf-8")
        self._settings = state.decode(text, SandboxSettings, str(paths.settings))
        self._access_key = "AKIA" + secrets.token_hex(8).upper()
        self._secret_key = secrets.token_urlsafe(30)
        self._token = secrets.token_urlsafe(30)
        self._proxy: StoreProxy | None = None
        self._store = ObjectStore(paths.store, paths.kept, self._access_key, self._secret_key, paths.mark, self.host)

    def start(self) -> None:
        """Bring everything up and write down how to reach it."""
        self._store.start()  # first: it needs a second, and no other thread may run yet
        self._paths.instances.mkdir()
        self._paths.instances.chmod(0o711)
        self._port = _reserve_port()
        self._runner = runner.choose(self._paths.instances)
        self._build()
        self._store.wait_ready(state.BUCKET)
        self._make_roles()
        self._info = self._describe()
        state.write_text(self._paths.credentials, _credentials(self._access_key, self._secret_key))
        state.write_text(self._paths.info, state.encode(self._info))

    def _build(self) -> None:
        """moto reads its environment when it is imported: hence the late imports."""
        state.write_text(self._paths.images, json.dumps(_moto_images()))
        os.environ.update(
            MOTO_AMIS_PATH=str(self._paths.images),
            MOTO_EC2_ENABLE_INSTANCE_TYPE_VALIDATION="true",
            MOTO_ENABLE_AMI_VALIDATION="true",
            MOTO_ENABLE_KEYPAIR_VALIDATION="true",
        )
        from launcher.sandbox import controlserver, spotprices, webserver
        from launcher.sandbox.cloud import Cloud
        from launcher.sandbox.ec2 import Ec2
        from launcher.sandbox.hypervisor import Hypervisor, Site

        self._records = Ec2()
        site = Site(
            folder=self._paths.instances,
            mark=self._paths.mark,
            ssh_port=self._port.getsockname()[1],
            runner=self._runner,
            settings=self._settings,
            mint=self._store.credentials,
            guest=self.guest,
        )
        self._hypervisor = Hypervisor(site, self._records)
        self._records.install(self._hypervisor)
        prices = self._price_history()
        spotprices.install(prices)
        orders = controlserver.Daemon(
            self._token, self._hypervisor, prices, lambda: self._cloud.faults, self._status, self._lock, self._stop
        )
        control = controlserver.ControlServer(orders)
        self._cloud = Cloud(webserver.moto_application(), control, self._records, self._hypervisor, self._lock)
        self._web = webserver.WebServer(self._cloud)
        if self._settings.s3_faults:
            self._proxy = StoreProxy(self.host, self._store.endpoint, self._cloud.faults)

    def _price_history(self) -> PriceHistory:
        path = self._paths.prices
        known = state.decode(path.read_text(encoding="utf-8"), PriceList, str(path)) if path.exists() else PriceList()
        zone_ids = [zone for region in state.REGIONS for zone in self._records.zone_ids(region)]
        return PriceHistory(known.prices, datetime.now(UTC) - PRICES_AGE, zone_ids)

    def _make_roles(self) -> None:
        """The roles and the instance profile, as an account's owner would have made them."""
        import boto3

        iam = boto3.session.Session().client(
            "iam",
            endpoint_url=self._web.url,
            region_name=state.REGION,
            aws_access_key_id=self._access_key,
            aws_secret_access_key=self._secret_key,
        )
        for role, service in ((state.PROFILE, "ec2"), (state.STOP_ROLE, "scheduler")):
            trust = {
                "Effect": "Allow",
                "Principal": {"Service": f"{service}.amazonaws.com"},
                "Action": "sts:AssumeRole",
            }
            policy = json.dumps({"Version": "2012-10-17", "Statement": [trust]})
            iam.create_role(RoleName=role, AssumeRolePolicyDocument=policy)
        iam.create_instance_profile(InstanceProfileName=state.PROFILE)
        iam.add_role_to_instance_profile(InstanceProfileName=state.PROFILE, RoleName=state.PROFILE)

    def _describe(self) -> SandboxInfo:
        return SandboxInfo(
            ec2_endpoint=self._web.url,
            s3_endpoint=self._store.endpoint if self._proxy is None else self._proxy.url,
            region=state.REGION,
            regions=state.REGIONS,
            zones=self._records.zones(state.REGION),
            access_key=self._access_key,
            secret_key=self._secret_key,
            credentials_file=str(self._paths.credentials),
            ssh_port=self._port.getsockname()[1],
            ssh_user=state.SSH_USER,
            bucket=state.BUCKET,
            instance_profile=state.PROFILE,
            pid=os.getpid(),
            control_token=self._token,
            settings=self._settings,
        )

    def _status(self) -> SandboxStatus:
        return SandboxStatus(
            info=self._info,
            instances=tuple(self._hypervisor.overview()),
            runs_as=self._runner.name,
            reason=self._runner.reason,
            started_at=self._started_at,
            idle_seconds=time.monotonic() - self._cloud.asked_at,
            pending_faults=self._cloud.faults.pending(),
        )

    def keep(self) -> None:
        """Tick until there is a reason to end."""
        while not self._stop.wait(TICK_SECONDS):
            with self._lock:
                self._cloud.scheduler.tick()
                self._hypervisor.tick()
                live = self._hypervisor.live()
            if live == 0 and time.monotonic() - self._cloud.asked_at > self._settings.idle_seconds:
                log.info("idle: ending")
                return
            if not self._store.running():
                log.error("the object store ended by itself: ending")
                return

    def end(self) -> None:
        """Take everything away: instances, object store, ports, and the state folder last.

        The bucket's data is laid aside for the next one: it may be all that is left of a run. `down` removes it.
        """
        log.info("ending")
        if hasattr(self, "_web"):
            self._web.close()
        if hasattr(self, "_hypervisor"):
            with self._lock:
                self._hypervisor.end_all()
        if self._proxy is not None:
            self._proxy.close()
        self._store.stop()
        if hasattr(self, "_port"):
            self._port.close()
        processes.end_marked(self._paths.mark, limit_seconds=5)
        shutil.rmtree(self._paths.root, ignore_errors=True)


def _reserve_port() -> socket.socket:
    """A port that no other sandbox takes for its SSH servers: bound, but never listened on, for the daemon's life."""
    one = socket.socket()
    one.bind(("127.0.0.1", 0))
    return one


def _moto_images() -> list[dict[str, object]]:
    from launcher.sandbox.images import moto_table

    return moto_table()


def _credentials(access_key: str, secret_key: str) -> str:
    return f"[default]\naws_access_key_id = {access_key}\naws_secret_access_key = {secret_key}\n"
