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
# Workloads of managed runtimes are run as they come: no flags, agents or maps for profilers. They are not among those
# that run without arguments: java-plain go mono erlang.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
seconds=${1:-5}
[ $# -gt 0 ] && shift
windlass=${WINDLASS:-$root/build/release/src/cli/windlass}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
w=$root/bench/workloads
hz=999

python=/usr/bin/python3
[ -x $python ] || python=$(command -v python3)
g++ -std=c++20 -O2 -fomit-frame-pointer "$root/tests/workloads/truth.cpp" -o "$work/truth"
command -v javac >/dev/null && javac -d "$work" "$w/Work.java"
programs=$root/tests/integration
case " $* " in *" go "*) (cd "$programs/go" && GOCACHE=$work/cache go build -o "$work/go_program" steps.go) ;; esac
case " $* " in *" mono "*) mcs -nologo -out:"$work/Chains.exe" "$programs/mono/Chains.cs" ;; esac
case " $* " in *" erlang "*) erlc -o "$work" "$programs/beam/chains.erl" ;; esac

declare -A commands=(
  [c++]="$work/truth $seconds"
  [clang]="clang -std=c++20 -O2 -c $w/work.cpp -o /dev/null"
  [cc1plus]="g++ -std=c++20 -O2 -c $w/work.cpp -o /dev/null"
  [python3]="$python $w/work.py $seconds"
  [perl]="perl $w/work.pl $seconds"
  [node]="node $w/work.js $seconds"
  [java]="java -XX:+PreserveFramePointer -cp $work Work $seconds"
  [java-plain]="java -cp $work Work $seconds"
  [go]="timeout $seconds $work/go_program"
  [mono]="mono $work/Chains.exe work $seconds"
  [erlang]="erl +S 1 -noshell -pa $work -s chains main work $seconds"
)
names=(c++ clang cc1plus python3 perl node java)
[ $# -gt 0 ] && names=("$@")

# Runs the workload below a recorder: own_cpu, total_cpu and wall in seconds.
measure() {
  local inner=$1
  shift
  local TIMEFORMAT='%U %S %R'
  printf 'TIMEFORMAT="%%U %%S %%R"; { time { %s; } >/dev/null 2>"%s/inner.err"; } 2>"%s/inner"\n' "$inner" "$work" "$work" >"$work/inner.sh"
  { time "$@" bash "$work/inner.sh" >"$work/out" 2>"$work/err"; } 2>"$work/outer" || true
  read -r u s r <"$work/inner"
  read -r tu ts tr <<<"$(tail -1 "$work/outer")"
  own_cpu=$(echo "$u + $s" | bc)
  total_cpu=$(echo "$tu + $ts" | bc)
  wall=$r
}

perf_complete() { # of a perf.data: samples; complete ones, whose outermost frame is an entry point or is called by one; share of named frames
  perf script --no-inline -F comm,ip,sym -i "$1" 2>/dev/null | awk '
    function done() { if (last != "") { all++; if (entry(last) || entry(before)) whole++ } last = before = "" }
    function entry(f) { return f ~ /^(_start|__libc_start_(main|call_main).*|start_thread|__clone3?|clone3?|_dl_start(_user)?|ret_from_fork.*|runtime\.(goexit|mstart|rt0_go).*)$/ }
    /^[^ \t]/ { next }
    /^[ \t]*$/ { done(); next }
    { before = last; last = $2; sub(/\+0x.*/, "", last); frames++; if (last != "[unknown]") named++ }
    END { done(); printf "%d %d %.2f%%\n", all, whole, frames ? 100 * named / frames : 0 }'
}

windlass_complete() { # likewise of a profile, and what was lost
  "$windlass" report --json "$1" | $python -c '
import json, re, sys
function, has_name, frames, named = {}, {}, 0, 0
for line in sys.stdin:
    record = json.loads(line)
    if record["type"] == "profile": profile = record
    elif record["type"] == "function": function[record["id"]] = not re.search(r"\+0x[0-9a-f]+$|^\[unknown", record["name"])
    elif record["type"] == "location": has_name[record["id"]] = record["lines"]
    elif record["type"] == "sample":
        frames += record["count"] * len(record["locations"])
        named += record["count"] * sum(any(function[l["function"]] for l in has_name[at]) for at in record["locations"])
print(profile["samples"], profile["samples"] - profile["truncated"], "%.2f%%" % (100 * named / max(frames, 1)), profile["lost"])'
}

echo "Machine: $(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -1), $(nproc) CPUs, Linux $(uname -r), $(date -u +%F); $hz Hz, ${seconds} s."
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
      read -r samples complete named lost < <(windlass_complete "$file")
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
