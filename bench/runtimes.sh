#!/usr/bin/env bash
# Managed runtimes as they come: `windlass record` beside `perf record`, and the leaf's caller beside frame pointers and the rules
# of the OpenTelemetry eBPF profiler, rebuilt in tests/support/peer_rules.h. Prints a Markdown table.
# usage: bench/runtimes.sh [SECONDS] [WORKLOAD...]        needs root, perf and a release build with the step tests
#
#   caller right   share of single-stepped instructions of the runtime's code at which the caller's pc is that of a shadow stack; the
#                  least and the most of the ways in which the runtime runs code (interpreted, compilers, releases)
#   whole, named   as compare_perf.sh has them; perf's counts stacks whose leaf's caller is missing as whole
#   kernel         by the kernel's account of the BPF program's time, copies of stacks for the agent included; a frame: of those shown
#   agent          CPU of the whole `record`, verification of its programs included, and its largest resident set. c++ is no runtime: the
#                  first row shows what a recording costs without one
seconds=${1:-5}
[ $# -gt 0 ] && shift
names=(c++ java-plain dotnet node go mono erlang python3 ruby)
[ $# -gt 0 ] && names=("$@")
tests=$(cd "$(dirname "$0")/.." && pwd)/build/release/tests/integration

# Of the lines "caller right of N: windlass 100%, frame pointers 1.2%, OTel's rule 98%": the least and the most of one column.
range() {
  sed -nE "s/.*caller right of [0-9]+:.*$1 ([0-9.]+)%.*/\1/p" "$2" | sort -g |
    awk 'NR == 1 { least = $1 } { most = $1 } END { if (!NR) print "-"; else if (least == most) print least "%"; else print least " to " most "%" }'
}

declare -A steps=(
  [java-plain]=test_hotspot_steps [dotnet]=test_coreclr_steps [node]=test_v8_steps [go]=test_go_steps
  [mono]="test_mono --gtest_filter=*EveryInstruction" [erlang]="test_beam --gtest_filter=*EveryInstruction"
)
stepped=$(mktemp -d)
for name in "${names[@]}"; do # before the workloads: they make programs
  [ -z "${steps[$name]-}" ] || (cd "$tests" && WINDLASS_STEP_PEERS=1 ./${steps[$name]} || true) >"$stepped/$name" 2>&1
done
. "$(dirname "$0")/recorders.sh"
stats_were=$(sysctl -n kernel.bpf_stats_enabled)
trap 'rm -rf "$work" "$stepped"; sysctl -q kernel.bpf_stats_enabled=$stats_were' EXIT
sysctl -q kernel.bpf_stats_enabled=1

share() { awk -v all="$1" -v part="$2" 'BEGIN { if (all) printf "%.2f%%", 100 * part / all; else print "-" }'; }

echo "Machine: \`$(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -1), $(nproc) CPUs, load $(cut -d' ' -f1 /proc/loadavg), Linux $(uname -r), $(date -u +%F); $hz Hz, ${seconds} s\`"
echo
echo "| | caller right: windlass | frame pointers | OTel's rule | whole, named: windlass | perf fp | perf dwarf,65528 | kernel ns a sample, a frame | raw | agent ms a sample, MiB |"
echo "|---|---|---|---|---|---|---|---|---|---|"
for name in "${names[@]}"; do
  command=${commands[$name]}
  command -v ${command%% *} >/dev/null || { echo "| $name | SKIPPED, not installed | | | | | | | | |"; continue; }
  measure "$command" "$windlass" record -v -F $hz -o "$work/w.pb.gz" --
  read -r samples complete named lost frames < <(windlass_complete "$work/w.pb.gz")
  ours="$(share "$samples" "$complete") of $samples, $named"
  kernel=$(sed -nE 's/.* s in the sampler, ([0-9,]+) ns a sample.*/\1/p' "$work/err" | tr -d ,)
  raw=$(sed -nE 's/.* ([0-9,]+) unwound by the agent .*/\1/p' "$work/err" | tr -d ,)
  read -r user system kib < <(sed -nE 's/.*agent: ([0-9.]+) s user, ([0-9.]+) s system, ([0-9]+) KiB.*/\1 \2 \3/p' "$work/err")
  agent=$(awk -v u="$user" -v s="$system" -v n="$samples" -v k="$kib" 'BEGIN { printf "%.3f, %.0f", (u + s) * 1000 / n, k / 1024 }')
  theirs=()
  for mode in fp dwarf,65528; do
    measure "$command" perf record -q -F $hz -e cpu-clock --call-graph $mode -o "$work/perf.data" --
    read -r all whole called < <(perf_complete "$work/perf.data")
    theirs+=("$(share "$all" "$whole"), $called")
    rm -f "$work/perf.data"
  done
  judged=$stepped/$name
  [ -f "$judged" ] || : >"$judged"
  echo "| $name | $(range windlass "$judged") | $(range 'frame pointers' "$judged") | $(range "OTel's rule" "$judged") | $ours | ${theirs[0]} | ${theirs[1]} | $kernel, $(awk -v k="$kernel" -v n="$samples" -v f="$frames" 'BEGIN { printf "%.0f", k * n / f }') | $(share "$samples" "$raw") | $agent |"
done
