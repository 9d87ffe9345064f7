#!/usr/bin/env bash
# What each type of event costs, beside `perf record` with the same event, by turns; prints a Markdown table.
# usage: bench/event_cost.sh [ROUNDS [REGEX_OF_TITLES]]      needs root, perf and a release build
#
#   wall       of the same work, as a multiple of the wall clock without a recorder; the least of ROUNDS
#   recorder   CPU seconds of everything below the recorder without the program's own; start and end included; the least
#   complete   windlass: stacks that are not truncated; perf: those that reach an entry point, as bench/recorders.sh counts
# The work is given in numbers of events, so that a recorder cannot shed it. perf 6.1 takes the program's stacks by frame
# pointers (fp), or copies 8 KiB of each (dwarf).
rounds=${1:-5} only=${2:-.}
seconds=0 names=()
. "$(dirname "$0")/recorders.sh"

g++ -std=c++20 -O2 -fomit-frame-pointer "$root/tests/workloads/events.cpp" -o "$work/events" -pthread
cc -O2 -fomit-frame-pointer "$root/tests/workloads/usdt.c" -o "$work/usdt"
cc -O2 -fomit-frame-pointer "$w/contended.c" -o "$work/contended" -pthread
cc -O2 -fomit-frame-pointer "$w/hand_over.c" -o "$work/hand_over" -pthread

# TITLE | COMMAND | options of windlass | options of perf, or - if it has no such event
rows=(
  "CPU time, $hz Hz|${commands[clang]}|-F $hz|-F $hz -e cpu-clock"
  "200,000 page faults|$work/events 200000 0 0|-e page-faults|-e page-faults -c 1"
  "100,000 waits|taskset -c 1 $work/hand_over 50000|-e off-cpu|-e sched:sched_switch -c 1"
  "100,000 context switches|taskset -c 1 $work/hand_over 50000|-e context-switches|-e context-switches -c 1"
  "100,000 hits of sched:sched_switch|taskset -c 1 $work/hand_over 50000|-e sched:sched_switch|-e sched:sched_switch -c 1"
  "waits for a contended mutex|$work/contended 200000|-e lock|-"
  "100,000 calls with a uprobe|$work/events 1 50000 0|-e uprobe:$work/events:probed|-e probe_events:probed -c 1"
  "50,000 hits of a static probe|$work/usdt 50000|-e usdt:$work/usdt:test:always|-e sdt_test:always -c 1"
)

trap 'perf probe -q -d "probe_events:*" -d "sdt_test:*"; perf buildid-cache --remove "$work/usdt"; rm -rf "$work"' EXIT
perf probe -q -x "$work/events" probed
perf buildid-cache --add "$work/usdt"
perf probe -q -x "$work/usdt" sdt_test:always

lower() { # NAME VALUE: keeps the least value of a name
  if [ -z "${least[$1]:-}" ] || [ "$(echo "$2 < ${least[$1]}" | bc)" = 1 ]; then least[$1]=$2; fi
}
keep() { # MODE: the figures of the run that measure() has ended
  lower "$1 wall" "$wall"
  lower "$1 cpu" "$(echo "$total_cpu - $own_cpu" | bc)"
}

run_once() { # COMMAND OPTIONS PERF_OPTIONS: each recorder once
  measure "$1"
  keep none
  # shellcheck disable=SC2086  # options are words
  measure "$1" "$windlass" record $2 -o "$work/w.pb.gz" --
  keep windlass
  [ "$3" != - ] || return 0
  for mode in fp dwarf; do
    # shellcheck disable=SC2086
    measure "$1" perf record -q $3 --call-graph $mode -o "$work/$mode.data" --
    keep "perf $mode"
  done
}

counted() { # FILE: how often the events of a profile happened; how often with a whole stack
  "$windlass" report --json "$1" | $python -c '
import json, sys
every = whole = 0
for record in map(json.loads, sys.stdin):
    if record["type"] == "sample":
        every += record["count"]
        whole += record["count"] * (not record["truncated"])
print(every, whole)'
}

print_row() { # TITLE MODE FILE SAMPLES COMPLETE
  local share=- times
  [ "${4:-0}" -eq 0 ] || share=$(awk -v all="$4" -v whole="$5" 'BEGIN { printf "%.2f%%", 100 * whole / all }')
  times=$(echo "scale=2; ${least[$2 wall]} / ${least[none wall]}" | bc)
  echo "| $1 | $2 | $times | ${least[$2 cpu]} | $(stat -c %s "$3") | ${4:--} | $share |"
}

echo "Machine: \`$(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -1), $(nproc) CPUs, Linux $(uname -r), $(date -u +%F), load $(cut -d' ' -f1 /proc/loadavg)\`"
echo
echo "| event | recorder | wall, times | recorder CPU s | bytes | samples | complete |"
echo "|---|---|---:|---:|---:|---:|---:|"
for row in "${rows[@]}"; do
  IFS='|' read -r title command options perf_options <<<"$row"
  [[ $title =~ $only ]] || continue
  declare -A least=()
  for ((round = 0; round < rounds; ++round)); do run_once "$command" "$options" "$perf_options"; done
  read -r samples complete < <(counted "$work/w.pb.gz")
  print_row "$title" windlass "$work/w.pb.gz" "$samples" "$complete"
  [ "$perf_options" != - ] || continue
  for mode in fp dwarf; do
    read -r samples complete _ < <(perf_complete "$work/$mode.data")
    print_row "" "perf $mode" "$work/$mode.data" "$samples" "$complete"
  done
done
