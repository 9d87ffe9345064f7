#!/usr/bin/env bash
# The agent's CPU time and memory for a sample of each kind. Prints a Markdown table.
# usage: bench/agent_cost.sh [SECONDS] [WORKLOAD...]        needs root and a release build
#
# Each workload is recorded twice, for SECONDS and for three times as long. The figures are those of the difference: without the start
# of the recorder and of the workload, and without the names that are looked up at the end.
#   raw        share of the samples that the agent has unwound, since the kernel side did not
#   agent      its CPU time a sample, and that of one CPU at this rate
#   memory     what the longer recording took at most, without the pages of files that it has mapped
seconds=${1:-5}
[ $# -gt 0 ] && shift
names=(c++ no-rows node java-plain dotnet mono go erlang python3 ruby perl)
[ $# -gt 0 ] && names=("$@")
asked_seconds=$seconds
seconds=$((seconds * 4 + 5)) # of the workloads, which are ended with the recording
. "$(dirname "$0")/recorders.sh"
g++ -O2 -fomit-frame-pointer -fno-asynchronous-unwind-tables -fno-exceptions "$root/tests/integration/recursion.cpp" -o "$work/no_rows"
commands[no-rows]="$work/no_rows 20 20000" # code that has to be followed

# Records for so many seconds: samples, raw ones, CPU seconds of the agent, KiB of anonymous memory.
one() {
  local duration=$1 most=0 now
  shift
  "$windlass" record -v --no-symbols -F "$hz" --duration "$duration" -o "$work/p.pb.gz" -- "$@" >"$work/out" 2>"$work/err" &
  local recorder=$!
  while kill -0 $recorder 2>/dev/null; do
    now=$(awk '/^RssAnon/ { print $2 }' /proc/$recorder/status 2>/dev/null || true)
    [ "${now:-0}" -gt "$most" ] && most=$now
    sleep 0.2
  done
  wait $recorder || true
  local samples raw user system
  samples=$(sed -nE 's/^windlass: ([0-9,]+) samples in .*/\1/p' "$work/err" | tr -d ,)
  raw=$(sed -nE 's/.* ([0-9,]+) unwound by the agent .*/\1/p' "$work/err" | tr -d ,)
  read -r user system < <(sed -nE 's/.*agent: ([0-9.]+) s user, ([0-9.]+) s system.*/\1 \2/p' "$work/err")
  echo "${samples:-0} ${raw:-0} $(echo "${user:-0} + ${system:-0}" | bc) $most"
}

echo "Machine: \`$(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -1), $(nproc) CPUs, load $(cut -d' ' -f1 /proc/loadavg), Linux $(uname -r), $(date -u +%F); $hz Hz, $asked_seconds s and $((3 * asked_seconds)) s\`"
echo
echo "| | samples | raw | agent, µs a sample | % of a CPU | memory, MiB |"
echo "|---|---|---|---|---|---|"
for name in "${names[@]}"; do
  command=${commands[$name]}
  command -v ${command%% *} >/dev/null || { echo "| $name | SKIPPED, not installed | | | | |"; continue; }
  read -r samples raw cpu _ < <(one "$asked_seconds" $command)
  read -r all_samples all_raw all_cpu memory < <(one $((3 * asked_seconds)) $command)
  awk -v name="$name" -v n=$((all_samples - samples)) -v raw=$((all_raw - raw)) -v cpu="$(echo "$all_cpu - $cpu" | bc)" -v kib="$memory" -v s=$((2 * asked_seconds)) 'BEGIN {
    if (n < 100) { printf "| %s | too few samples | | | | |\n", name; exit }
    share = raw < 0 ? 0 : raw > n ? 100 : 100 * raw / n
    printf "| %s | %d | %.1f%% | %.0f | %.2f | %.0f |\n", name, n, share, cpu / n * 1e6, 100 * cpu / s, kib / 1024 }'
done
