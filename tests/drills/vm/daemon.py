"""`python -m drills.vm.daemon HOME`: the embedded cloud's daemon with fake VMs for instances, in the foreground."""

from __future__ import annotations

from drills.noting import NotingDaemon, main
from drills.vm.guest import VmGuest
from drills.vm.network import HOST


class VmDaemon(NotingDaemon):
    """A sandbox on the bridge of the fake VMs."""

    host = HOST
    guest = VmGuest


if __name__ == "__main__":
    main(VmDaemon)
