# Sourced by compare_perf.sh and runtimes.sh, which set `seconds` and `names`, the workloads: their commands, how one is run below
# a recorder, and what a recording has. Workloads of managed runtimes are run as they come: no flags, agents or maps for profilers.
# dotnet is made by test_coreclr_steps.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$PWD
windlass=${WINDLASS:-$root/build/release/src/cli/windlass}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
w=$root/bench/workloads
hz=${WINDLASS_BENCH_HZ:-999}

python=/usr/bin/python3
[ -x $python ] || python=$(command -v python3)
g++ -std=c++20 -O2 -fomit-frame-pointer "$root/tests/workloads/truth.cpp" -o "$work/truth"
cc -O2 "$w/many.c" -o "$work/many"
command -v javac >/dev/null && javac -d "$work" "$w/Work.java"
programs=$root/tests/integration
case " ${names[*]} " in *" go "*) (cd "$programs/go" && GOCACHE=$work/cache go build -o "$work/go_program" steps.go) ;; esac
case " ${names[*]} " in *" mono "*) mcs -nologo -out:"$work/Chains.exe" "$programs/mono/Chains.cs" ;; esac
case " ${names[*]} " in *" erlang "*) erlc -o "$work" "$programs/beam/chains.erl" ;; esac

declare -A commands=(
  [c++]="$work/truth $seconds"
  [many]="$work/many $seconds 500"
  [clang]="clang -std=c++20 -O2 -c $w/work.cpp -o /dev/null"
  [cc1plus]="g++ -std=c++20 -O2 -c $w/work.cpp -o /dev/null"
  [python3]="$python $w/work.py $seconds"
  [perl]="perl $w/work.pl $seconds"
  [node]="node $w/work.js $seconds"
  [java]="java -XX:+PreserveFramePointer -cp $work Work $seconds"
  [java-plain]="java -cp $work Work $seconds"
  [go]="timeout $seconds $work/go_program"
  [mono]="mono $work/Chains.exe work $seconds"
  [dotnet]="timeout $seconds $root/build/release/tests/integration/coreclr_peer/methods"
  [ruby]="ruby $programs/ruby/chains.rb $seconds"
  [erlang]="erl +S 1 -noshell -pa $work -s chains main work $seconds"
)
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

windlass_complete() { # likewise of a profile; what was lost; frames outside the kernel
  "$windlass" report --json "$1" | $python -c '
import json, re, sys
function, has_name, in_kernel, frames, named, user = {}, {}, {}, 0, 0, 0
for line in sys.stdin:
    record = json.loads(line)
    if record["type"] == "profile": profile = record
    elif record["type"] == "function": function[record["id"]] = not re.search(r"\+0x[0-9a-f]+$|^\[unknown", record["name"])
    elif record["type"] == "location":
        has_name[record["id"]] = record["lines"]
        in_kernel[record["id"]] = record["address"] >> 63
    elif record["type"] == "sample":
        frames += record["count"] * len(record["locations"])
        named += record["count"] * sum(any(function[l["function"]] for l in has_name[at]) for at in record["locations"])
        user += record["count"] * sum(not in_kernel[at] for at in record["locations"])
print(profile["samples"], profile["samples"] - profile["truncated"], "%.2f%%" % (100 * named / max(frames, 1)), profile["lost"], user)'
}
