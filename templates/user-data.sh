#!/bin/sh
# The first act of a machine: a timer that ends it at its deadline, at an absolute time and across reboots, whatever else
# happens on it. Nothing is downloaded and nothing secret is in here. A string.Template: a doubled dollar sign is the
# shell's own. Safe to run twice.
#   deadline: UTC, as "2026-12-01 02:30:00 UTC"
set -eu

root="$${GPUCOST_ROOT:-}"
units="$$root/etc/systemd/system"
mkdir -p "$$units"

cat >"$$units/gpucost-deadline.service" <<'UNIT'
[Unit]
Description=End this machine at the deadline of its lease

[Service]
Type=oneshot
ExecStart=/sbin/shutdown -h now
UNIT

cat >"$$units/gpucost-deadline.timer" <<'UNIT'
[Unit]
Description=Deadline of this lease

[Timer]
OnCalendar=${deadline}
AccuracySec=1s
Persistent=true

[Install]
WantedBy=timers.target
UNIT

systemctl enable --now gpucost-deadline.timer

# A timer whose time passed before it was first enabled does not fire.
if [ "$$(date -u +%s)" -ge "$$(date -u -d '${deadline}' +%s)" ]; then
  shutdown -h now
fi
