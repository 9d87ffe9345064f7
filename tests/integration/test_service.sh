#!/usr/bin/env bash
# The units are such that systemd reads them, with an exposure below 3 (of 10), and the rights that they leave are enough
# to record.
# usage: test_service.sh COMMAND RECORD_UNIT AGENT_UNIT AGENT_CONF
set -euo pipefail
command -v systemd-analyze >/dev/null || { echo "SKIPPED: there is no systemd-analyze"; exit 0; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
sed "s|exec /[^ ]*/windlass |exec $1 |" "$2" > "$work/windlass-record.service"
grep -q "exec $1 record" "$work/windlass-record.service"
sed "s|^ExecStart=/[^ ]*/windlass |ExecStart=$1 |" "$3" > "$work/windlass-agent.service"
grep -q "^ExecStart=$1 agent" "$work/windlass-agent.service"
for unit in record agent; do
  said=$(systemd-analyze verify --man=no "$work/windlass-$unit.service" 2>&1) || { echo "$said"; exit 1; }
  [ -z "$said" ] || { echo "$said"; exit 1; }
  systemd-analyze security --offline=true --threshold=30 --no-pager "$work/windlass-$unit.service" > "$work/exposure" || { cat "$work/exposure"; exit 1; }
  tail -n 1 "$work/exposure"
done

# What the units run, with their options and their rights, for seconds instead of hours.
start=$(sed -n "s/^ExecStart=.*-c '\(.*\)'$/\1/p" "$work/windlass-record.service" | sed 's/%%/%/g; s/--duration 1h/--duration 1s/')
case $start in *"--duration 1s"*) ;; *) echo "no --duration 1h in the unit"; exit 1 ;; esac
[ "$(id -u)" -eq 0 ] && "$1" doctor | tail -n 1 | grep -q works || { echo "SKIPPED: not root, or this machine cannot be recorded"; exit 0; }
with_rights() { # UNIT COMMAND...
  local rights
  rights=$(sed -n 's/^CapabilityBoundingSet=//p' "$work/$1.service" | tr 'A-Z' 'a-z' | sed 's/cap_/+/g; s/ /,/g')
  shift
  STATE_DIRECTORY=$work setpriv --bounding-set="-all,$rights" --no-new-privs "$@"
}
with_rights windlass-record sh -c "$start"
ls "$work"/20*T*.pb.gz
sed "s|/run/windlass|$work|" "$4" > "$work/agent.conf"
start=$(sed -n 's/^ExecStart=//p' "$work/windlass-agent.service" | sed "s|/etc/windlass/agent.conf|$work/agent.conf|")
with_rights windlass-agent sh -c "exec $start --duration 2s"
"$1" report "$work/profiles.db" > "$work/report"
grep -q samples "$work/report"
