#!/usr/bin/env bash
# `windlass record -a` on a machine with more to do than it can: what is lost, and the recorder's memory over time. Prints a Markdown
# table. usage: bench/load.sh [SECONDS] [PROCESSES] [HZ] [WORKLOAD...]        needs root and a release build
#
#   PROCESSES busy processes run beside each other, of the workloads in turn (recorders.sh). Each is ended after a tenth of the time and
#   started anew, so that processes come and go. The workload "many" is 500 processes, which hardly do anything: for 5,000 of them
#   bench/load.sh 60 10 997 many
#   resident   VmRSS of the recorder; anonymous: without the pages of files that it has mapped
seconds=${1:-90}
processes=${2:-50}
export WINDLASS_BENCH_HZ=${3:-997}
[ $# -gt 3 ] && shift 3 || shift $#
names=(c++ node python3 java-plain perl ruby)
[ $# -gt 0 ] && names=("$@")
asked_seconds=$seconds
seconds=$((seconds / 10 + 1)) # of one workload
. "$(dirname "$0")/recorders.sh"

running=()
for name in "${names[@]}"; do
  command=${commands[$name]}
  if command -v ${command%% *} >/dev/null; then running+=("$command"); else echo "SKIPPED $name, not installed" >&2; fi
done
again=$work/again
touch "$again"
for ((i = 0; i < processes; i++)); do
  while [ -e "$again" ]; do timeout "$seconds" ${running[i % ${#running[@]}]} || true; done >/dev/null 2>&1 &
done
trap 'rm -f "$again"; wait; rm -rf "$work"' EXIT
renice -n -20 -p $$ >/dev/null # what looks at the recorder, like the recorder itself
sleep 2

# In a session of its own, as a service is: in that of the workloads its priority would count among them alone.
setsid "$windlass" record -a -v -F "$hz" --duration "$asked_seconds" --no-symbols -o "$work/load.pb.gz" >"$work/out" 2>&1 &
recorder=$!
begin=$(date +%s.%N)
{ tail --pid=$recorder -s 0.1 -f /dev/null; date +%s.%N >"$work/ended"; } &
watcher=$!
echo "Machine: \`$(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -1), $(nproc) CPUs, Linux $(uname -r), $(date -u +%F); $hz Hz, $asked_seconds s, $processes processes: ${names[*]}\`"
echo
echo "| second | load | resident, MiB | anonymous, MiB |"
echo "|---|---|---|---|"
every=$((asked_seconds / 15 + 1))
while kill -0 $recorder 2>/dev/null; do
  [ -r /proc/$recorder/smaps_rollup ] || break
  awk -v second=$(($(date +%s) - ${begin%.*})) -v load="$(cut -d' ' -f1 /proc/loadavg)" '
    /^Rss/ { all = $2 } /^Anonymous/ { anonymous = $2 }
    END { if (all) printf "| %d | %s | %.0f | %.0f |\n", second, load, all / 1024, anonymous / 1024 }' /proc/$recorder/smaps_rollup 2>/dev/null || true
  sleep $every
done
wait $recorder || true
wait $watcher
echo
grep -E '^windlass: [0-9,]+ samples|least certain|truncated|kernel:|code without rows|processes:|agent:' "$work/out"
echo "It ended $(awk -v begin="$begin" '{ printf "%.1f", $1 - begin }' "$work/ended") s after it was started."
