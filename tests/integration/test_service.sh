#!/usr/bin/env bash
# The unit is one that systemd reads, with an exposure below 3 (of 10), and the rights that it leaves are enough to record.
# usage: test_service.sh COMMAND UNIT
set -euo pipefail
command -v systemd-analyze >/dev/null || { echo "SKIPPED: there is no systemd-analyze"; exit 0; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
sed "s|exec /[^ ]*/windlass |exec $1 |" "$2" > "$work/windlass-record.service"
grep -q "exec $1 record" "$work/windlass-record.service"
said=$(systemd-analyze verify --man=no "$work/windlass-record.service" 2>&1) || { echo "$said"; exit 1; }
[ -z "$said" ] || { echo "$said"; exit 1; }
systemd-analyze security --offline=true --threshold=30 --no-pager "$work/windlass-record.service" > "$work/exposure" || { cat "$work/exposure"; exit 1; }
tail -n 1 "$work/exposure"

# What the unit runs, with its options and its rights, for a second instead of an hour.
start=$(sed -n "s/^ExecStart=.*-c '\(.*\)'$/\1/p" "$work/windlass-record.service" | sed 's/%%/%/g; s/--duration 1h/--duration 1s/')
case $start in *"--duration 1s"*) ;; *) echo "no --duration 1h in the unit"; exit 1 ;; esac
[ "$(id -u)" -eq 0 ] && "$1" doctor | tail -n 1 | grep -q works || { echo "SKIPPED: not root, or this machine cannot be recorded"; exit 0; }
rights=$(sed -n 's/^CapabilityBoundingSet=//p' "$work/windlass-record.service" | tr 'A-Z' 'a-z' | sed 's/cap_/+/g; s/ /,/g')
STATE_DIRECTORY=$work setpriv --bounding-set="-all,$rights" --no-new-privs sh -c "$start"
ls "$work"/20*T*.pb.gz
