#!/bin/bash
# What a call of malloc() costs a process that `record --alloc -p` watches (workloads/allocation_calls.c): the median of
# its CPU nanoseconds for malloc() and free(), by how the process is watched.
#
# bench/running_allocations.sh [SECONDS]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
seconds=${1:-10}
windlass=${WINDLASS:-$PWD/build/release/src/cli/windlass}
library=${WINDLASS_ALLOC_LIBRARY:-$PWD/build/release/src/alloc/libwindlass_alloc.so}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
gcc -O2 bench/workloads/allocation_calls.c -o "$work/calls"

# watch NAME PRELOAD [OPTIONS...]: without options nobody watches. What ran while the recording began or ended counts
# neither way.
watch() {
  local name=$1 preload=$2 process
  shift 2
  LD_PRELOAD=$preload "$work/calls" >"$work/lines" &
  process=$!
  if [ $# -eq 0 ]; then
    sleep "$seconds"
  else
    "$windlass" record -F 1 --no-symbols "$@" -o "$work/p.pb.gz" -p $process >"$work/log" 2>&1 &
    local recorder=$!
    until grep -q complete "$work/log"; do sleep 0.1; done
    : >"$work/lines"
    sleep "$seconds"
    cp "$work/lines" "$work/kept"
    kill -INT $recorder
    wait $recorder || true
    mv "$work/kept" "$work/lines"
  fi
  kill $process
  wait $process 2>/dev/null || true
  printf '%-50s %6s ns\n' "$name" "$(tr -d '\0' <"$work/lines" | sort -n | awk '{ at[NR] = $1 } END { print at[int((NR + 1) / 2)] }')"
}
watch "nobody watches" ""
watch "probes on malloc, --alloc" "" --alloc
watch "probes on malloc, --alloc=1" "" --alloc=1
watch "the library of --alloc preloaded, nobody watches" "$library"
watch "the library's own probes, --alloc" "$library" --alloc
