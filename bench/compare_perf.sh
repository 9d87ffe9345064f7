#!/usr/bin/env bash
# `windlass record` beside `perf record` on the same workloads in the same run; prints Markdown tables.
# usage: bench/compare_perf.sh [SECONDS] [WORKLOAD...]      needs root, perf and a release build
#
#   bytes      what the recorder wrote
#   recorder   CPU seconds of the recorder: everything below it minus the workload's own
#   slow-down  the workload's own user + system CPU seconds for the same work (compilers), or wall (timed ones), against none
#   report     seconds from the end of the workload to a symbolised report; perf's without inlined frames, which take it minutes
#   complete   perf: the outermost frame is the entry point or a thread's start; windlass: its own count of whole stacks,
#              whose truth tests/integration compares with known stacks
#   named      the share of frames that have a function's name, the kernel's and those of the shells around the workload too
# Workloads of managed runtimes as they come are not among those that run without arguments: java-plain go mono erlang dotnet ruby.
seconds=${1:-5}
[ $# -gt 0 ] && shift
names=(c++ clang cc1plus python3 perl node java)
[ $# -gt 0 ] && names=("$@")
. "$(dirname "$0")/recorders.sh"

echo "Machine: \`$(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -1), $(nproc) CPUs, Linux $(uname -r), $(date -u +%F); $hz Hz, ${seconds} s\`"
for name in "${names[@]}"; do
  command=${commands[$name]}
  command -v ${command%% *} >/dev/null || { echo; echo "$name: SKIPPED, not installed"; continue; }
  echo
  shown=${command//$work\//}
  shown=${shown//$root\//}
  echo "**$name** \`${shown//$work/.}\`"
  echo
  echo "| recorder | bytes | samples | complete | named | lost | recorder CPU s | workload CPU s | wall s | report s |"
  echo "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|"
  measure "$command"
  echo "| none | | | | | | | $own_cpu | $wall | |"
  for mode in windlass fp dwarf,8192 dwarf,65528; do
    if [ $mode = windlass ]; then
      file=$work/w.pb.gz
      measure "$command" "$windlass" record -F $hz -o "$file" --
      cp "$work/err" "$work/windlass.err"
      after=$(echo "$tr - $wall" | bc)
      start=$(date +%s.%N)
      "$windlass" report "$file" >/dev/null
      report=$(echo "$(date +%s.%N) - $start" | bc)
      read -r samples complete named lost _ < <(windlass_complete "$file")
    else
      file=$work/perf.data
      measure "$command" perf record -q -F $hz -e cpu-clock --call-graph $mode -o "$file" --
      after=$(echo "$tr - $wall" | bc)
      start=$(date +%s.%N)
      perf report --stdio --no-children --no-inline -i "$file" >/dev/null 2>&1
      report=$(echo "$(date +%s.%N) - $start" | bc)
      read -r samples complete named < <(perf_complete "$file")
      lost=$(perf report --stats -i "$file" 2>/dev/null | awk '/LOST_SAMPLES events|LOST events/ {n += $3} END {print n + 0}')
      mode="perf $mode"
    fi
    share=$(awk -v a="${samples:-0}" -v c="${complete:-0}" 'BEGIN { if (a) printf "%.2f%%", 100 * c / a; else print "-" }')
    echo "| $mode | $(stat -c %s "$file") | ${samples:--} | $share | $named | ${lost:--} | $(echo "$total_cpu - $own_cpu" | bc) | $own_cpu | $wall | $(printf %.2f "$(echo "$report + $after" | bc)") |"
    rm -f "$file"
  done
done
