#!/bin/bash
# What recording allocations costs a program that hardly does anything else (workloads/allocating.cpp): its CPU seconds
# (user and system), the least of ROUNDS runs that take turns, as multiples of those without a recorder. Each allocation
# is recorded in one round of four. The empty library shows what preloading alone costs. A row is left out where its
# program is missing: heaptrack, libjemalloc2, libgoogle-perftools4 are Debian's packages.
#
# bench/allocations.sh [ROUNDS [DOCUMENTS_SAMPLED [DOCUMENTS_EACH]]]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
rounds=${1:-9} sampled=${2:-4000} each=${3:-3000}
windlass=${WINDLASS:-$PWD/build/release/src/cli/windlass}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
g++ -std=c++20 -O2 -g1 bench/workloads/allocating.cpp -o "$work/allocating" -pthread
g++ -shared -fPIC -x c++ /dev/null -o "$work/empty.so" -nostdlib

# cpu DOCUMENTS COMMAND...: the CPU seconds that the program says it used below the command.
cpu() {
  local documents=$1
  shift
  "$@" "$work/allocating" "$documents" 2>/dev/null | awk '$1 == "CPU" { print $2 }' || true
}
has() { ! LD_PRELOAD=$1 true 2>&1 | grep -q 'cannot be preloaded'; }

declare -A least
names=()
# measure NAME DOCUMENTS COMMAND...
measure() {
  local name=$1 seconds
  shift
  seconds=$(cpu "$@")
  if [ -z "$seconds" ]; then echo "$name failed" >&2; return; fi
  [ -n "${least[$name]:-}" ] || names+=("$name")
  if [ -z "${least[$name]:-}" ] || [ "$(echo "$seconds < ${least[$name]}" | bc)" = 1 ]; then least[$name]=$seconds; fi
}
record=("$windlass" record -F 1 --no-symbols -o "$work/p.pb.gz")
for ((round = 0; round < rounds; ++round)); do
  measure "alone (sampled)" "$sampled" env
  measure "an empty library preloaded" "$sampled" env LD_PRELOAD="$work/empty.so"
  measure "windlass --alloc" "$sampled" "${record[@]}" --alloc --
  if has libjemalloc.so.2; then
    measure "jemalloc alone (sampled)" "$sampled" env LD_PRELOAD=libjemalloc.so.2
    measure "jemalloc, lg_prof_sample:19" "$sampled" env LD_PRELOAD=libjemalloc.so.2 MALLOC_CONF=prof:true,lg_prof_sample:19
  fi
  ((round % 4 == 0)) || continue
  measure "alone (each)" "$each" env
  measure "windlass --alloc=1" "$each" "${record[@]}" --alloc=1 --
  if command -v heaptrack >/dev/null; then measure "heaptrack" "$each" heaptrack --raw -o "$work/heaptrack"; fi
  if has libjemalloc.so.2; then
    measure "jemalloc alone (each)" "$each" env LD_PRELOAD=libjemalloc.so.2
    measure "jemalloc, lg_prof_sample:0" "$each" env LD_PRELOAD=libjemalloc.so.2 MALLOC_CONF=prof:true,lg_prof_sample:0
  fi
  if has libtcmalloc.so.4; then
    measure "tcmalloc alone (each)" "$each" env LD_PRELOAD=libtcmalloc.so.4
    measure "tcmalloc, HEAPPROFILE" "$each" env LD_PRELOAD=libtcmalloc.so.4 HEAPPROFILE="$work/heap"
  fi
done
printf '%-30s %8s %8s\n' "" "CPU s" "times"
for name in "${names[@]}"; do
  case $name in *alone*) base=${least[$name]} ;; esac
  printf '%-30s %8.4f %8.3f\n' "$name" "${least[$name]}" "$(echo "scale=4; ${least[$name]} / $base" | bc)"
done
