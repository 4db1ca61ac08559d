"""The private network of the fake VMs: one bridge with no route out, a namespace for each VM, and what may go wrong.

Owns every name and address in it. Needs root, iproute2 and nftables.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

PREFIX = "gpudrill"
HOST = "10.77.0.1"
"""The bridge's own address: servers that VMs must reach listen here."""
METADATA = "169.254.169.254"

# Loopback stays: the metadata service of a real machine does not pass its network either.
_CUT = """
table inet cut {
  chain i { type filter hook input priority 0; iifname "eth0" drop; }
  chain o { type filter hook output priority 0; oifname "eth0" drop; }
}
"""


def run(*argv: str, stdin: str = "") -> str:
    """Run a command to its end; its output. Raises RuntimeError with what it said."""
    done = subprocess.run(argv, input=stdin, capture_output=True, text=True, timeout=20)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(argv)}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


@dataclass(frozen=True, slots=True)
class Namespace:
    """The network of one VM: `eth0` on the bridge, and no default route."""

    number: int

    @property
    def name(self) -> str:
        """Also the VM's host name."""
        return f"{PREFIX}-{self.number}"

    @property
    def address(self) -> str:
        """Where the VM answers."""
        return f"10.77.{self.number}.2"

    @property
    def link(self) -> str:
        """The host's end of its cable."""
        return f"{PREFIX}-v{self.number}"

    def add(self) -> None:
        """Plug it in."""
        run("ip", "netns", "add", self.name)
        run("ip", "link", "add", self.link, "type", "veth", "peer", "name", "eth0", "netns", self.name)
        run("ip", "link", "set", self.link, "master", PREFIX, "up")
        run("ip", "-n", self.name, "addr", "add", f"{self.address}/16", "dev", "eth0")
        for link in ("lo", "eth0"):
            run("ip", "-n", self.name, "link", "set", link, "up")
        run("ip", "-n", self.name, "addr", "add", f"{METADATA}/32", "dev", "lo")

    def remove(self) -> None:
        """Take it away; twice does no harm."""
        for argv in (("ip", "netns", "del", self.name), ("ip", "link", "del", self.link)):
            with suppress(RuntimeError):
                run(*argv)

    def cut(self) -> None:
        """Drop everything, both ways: nobody is told."""
        run("ip", "netns", "exec", self.name, "nft", "-f", "-", stdin=_CUT)

    def heal(self) -> None:
        """Undo `cut`."""
        run("ip", "netns", "exec", self.name, "nft", "delete", "table", "inet", "cut")

    def slow(self, rate: str) -> None:
        """Limit both directions, as `8mbit`."""
        shape = ("root", "tbf", "rate", rate, "burst", "32k", "latency", "400ms")
        run("tc", "qdisc", "replace", "dev", self.link, *shape)
        run("ip", "netns", "exec", self.name, "tc", "qdisc", "replace", "dev", "eth0", *shape)

    def unplug(self) -> None:
        """Pull the cable at the VM's end, so that not even its death is heard."""
        run("ip", "-n", self.name, "link", "set", "eth0", "down")


def of(address: str) -> Namespace:
    """The namespace of the VM at an address."""
    return Namespace(int(address.split(".")[2]))


@contextmanager
def bridge() -> Iterator[None]:
    """The bridge, for as long as the context is open; everything of ours is gone after it."""
    sweep()
    run("ip", "link", "add", PREFIX, "type", "bridge")
    try:
        run("ip", "addr", "add", f"{HOST}/16", "dev", PREFIX)
        run("ip", "link", "set", PREFIX, "up")
        yield
    finally:
        sweep()


def left() -> list[str]:
    """Namespaces and links of ours that exist, the bridge left out."""
    names = [str(one["name"]) for one in json.loads(run("ip", "-j", "netns", "list") or "[]")]
    links = [str(one["ifname"]) for one in json.loads(run("ip", "-j", "link", "show"))]
    return [name for name in (*names, *links) if name.startswith(f"{PREFIX}-")]


def sweep() -> None:
    """Remove whatever an earlier drill left."""
    for name in left():
        with suppress(RuntimeError):
            run("ip", *(("link", "del") if name.startswith(f"{PREFIX}-v") else ("netns", "del")), name)
    with suppress(RuntimeError):
        run("ip", "link", "del", PREFIX)
