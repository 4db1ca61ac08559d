"""The few commands of a real machine that an instance's root directory brings along, as shell scripts.

They only write wishes into `$GPUCOST_ROOT/run/sandbox`; the instance's first process and the hypervisor act on them.
`shutdown` is a file with the due time (Unix seconds), `units/NAME` is a unit that is wanted active.
"""

from __future__ import annotations

SUDO = """\
#!/bin/sh
# An instance's user may do everything here already: drop sudo's options, run the rest.
while [ $# -gt 0 ]; do
  case $1 in
    --) shift; break ;;
    -u|-g|-h|-p|-C|-r|-t|-T|-U|-D|-R) shift; [ $# -gt 0 ] && shift ;;
    -*) shift ;;
    *) break ;;
  esac
done
[ $# -gt 0 ] || exit 0
exec env -- "$@"
"""

SHUTDOWN = """\
#!/bin/sh
run="$GPUCOST_ROOT/run/sandbox"
when=
for word in "$@"; do
  case $word in
    -c) rm -f "$run/shutdown"; exit 0 ;;
    -h|-P|--poweroff|--no-wall) ;;
    -*) echo "shutdown: $word is not supported in the sandbox" >&2; exit 1 ;;
    *) [ -n "$when" ] || when=$word ;;
  esac
done
when=${when:-+1}
now=$(date +%s)
minutes=${when#+}
case $when in
  now) due=$now ;;
  +*) case $minutes in ''|*[!0-9]*) due= ;; *) due=$(( now + minutes * 60 )) ;; esac ;;
  [0-9]*:[0-9][0-9])
    due=$(date -u -d "$when" +%s) || due=
    [ -z "$due" ] || [ "$due" -ge "$now" ] || due=$(( due + 86400 )) ;;
  *) due= ;;
esac
[ -n "$due" ] || { echo "Failed to parse time specification: $when" >&2; exit 1; }
echo "$due" > "$run/.shutdown.$$" && mv "$run/.shutdown.$$" "$run/shutdown"
"""

POWEROFF = """\
#!/bin/sh
exec "$GPUCOST_ROOT/usr/local/sbin/shutdown" -h now
"""

SYSTEMCTL = """\
#!/bin/sh
etc="$GPUCOST_ROOT/etc/systemd/system"
wanted="$GPUCOST_ROOT/run/sandbox/units"
now=
verb=
units=
for word in "$@"; do
  case $word in
    --now) now=1 ;;
    --no-block|--quiet|-q|--force|-f|--no-pager|--system|--no-ask-password) ;;
    -*) echo "systemctl: $word is not supported in the sandbox" >&2; exit 1 ;;
    *) if [ -z "$verb" ]; then verb=$word; else
         case $word in *.*) ;; *) word=$word.service ;; esac
         units="$units $word"
       fi ;;
  esac
done
target() { case $1 in *.timer) echo timers.target.wants ;; *) echo multi-user.target.wants ;; esac; }
each() { for unit in $units; do "$1" "$unit" || exit $?; done; }
known() { [ -f "$etc/$1" ] || { echo "Unit $1 not found." >&2; exit 5; }; }
start() { known "$1"; : > "$wanted/$1"; }
stop() { rm -f "$wanted/$1"; }
enable() {
  known "$1"
  mkdir -p "$etc/$(target "$1")" && ln -sf "$etc/$1" "$etc/$(target "$1")/$1"
  [ -z "$now" ] || start "$1"
}
disable() { rm -f "$etc/$(target "$1")/$1"; [ -z "$now" ] || stop "$1"; }
active() { [ -e "$wanted/$1" ] && { echo active; return 0; }; echo inactive; return 3; }
enabled() { [ -e "$etc/$(target "$1")/$1" ] && { echo enabled; return 0; }; echo disabled; return 1; }
case $verb in
  daemon-reload) ;;
  start) each start ;;
  restart) each stop; sleep 1; each start ;;
  stop) each stop ;;
  enable) each enable ;;
  disable) each disable ;;
  is-active) each active ;;
  is-enabled) each enabled ;;
  is-system-running) echo running ;;
  poweroff) exec "$GPUCOST_ROOT/usr/local/sbin/shutdown" -h now ;;
  *) echo "systemctl: ${verb:-nothing} is not supported in the sandbox" >&2; exit 1 ;;
esac
"""

EXEC = """\
#!/bin/sh
exec {program} "$@"
"""
