#!/bin/sh
# The first acts of a machine: a timer that ends it at its deadline, at an absolute time and across reboots, whatever else
# happens on it, and a watch that ends it earlier where no agent is at work and nobody sees that. Nothing is downloaded and
# nothing secret is in here. A string.Template: a doubled dollar sign is the shell's own. Safe to run twice.
#   deadline: UTC, as "2026-12-01 02:30:00 UTC"
#   quiet_minutes: how long no agent may have written its status
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

watch="$$root/usr/local/sbin/gpucost-watch"
mkdir -p "$${watch%/*}"
cat >"$$watch" <<'WATCH'
#!/bin/sh
# An agent replaces its status each second. This counts the minutes in which none did; it trusts no clock.
said=
quiet=0
while sleep 60; do
  now="$$(stat -c '%n %y' "$${GPUCOST_ROOT:-}"/home/*/gpucost/*/status.json 2>/dev/null)"
  if [ "$$now" = "$$said" ]; then quiet=$$((quiet + 1)); else quiet=0; fi
  said="$$now"
  if [ "$$quiet" -ge ${quiet_minutes} ]; then shutdown -h now; fi
done
WATCH
chmod 755 "$$watch"

cat >"$$units/gpucost-watch.service" <<'UNIT'
[Unit]
Description=End this machine where no agent is at work

[Service]
ExecStart=/usr/local/sbin/gpucost-watch
Restart=always

[Install]
WantedBy=multi-user.target
UNIT

systemctl enable --now gpucost-watch.service

# sudo looks up the name of its machine; where no name server answers, a power-off would wait for that.
if ! grep -qsF " $$(uname -n)" "$$root/etc/hosts"; then
  echo "127.0.1.1 $$(uname -n)" >>"$$root/etc/hosts"
fi
