#!/usr/bin/env bash
# Waits for one lock of the kernel, as `windlass record --lock` and `perf lock record` see them in the same run; prints a
# Markdown table with a row for each run.
# usage: bench/lock_peer.sh [RUNS [WRITES]]      needs root, perf and a release build
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
runs=${1:-5} writes=${2:-100}
windlass=${WINDLASS:-$PWD/build/release/src/cli/windlass}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cc -O2 -g1 bench/workloads/inode_lock.c -o "$work/inode_lock" -pthread

echo "| run | perf: waits | perf: ms | windlass: waits | windlass: ms | whole stacks | windlass / perf |"
echo "|---|---:|---:|---:|---:|---:|---:|"
for ((run = 1; run <= runs; ++run)); do
  perf lock record -q -o "$work/lock.data" -- \
    "$windlass" record --lock -o "$work/w.pb.gz" -- "$work/inode_lock" "$work/file" "$writes" >/dev/null 2>&1
  { "$windlass" report --json "$work/w.pb.gz"; perf script -i "$work/lock.data" 2>/dev/null; } | python3 -c '
import json, re, sys
began, waits, total, ours, ours_ns, whole = {}, 0, 0, 0, 0, 0
for line in sys.stdin:
    if line.startswith("{"):
        record = json.loads(line)
        if record["type"] == "sample" and record["event"] == "lock":
            ours += record["count"]
            ours_ns += record["value"]
            whole += record["count"] * (not record["truncated"])
    elif found := re.match(r"\s*inode_lock\s+(\d+)\s.*?([\d.]+):\s+lock:contention_(begin|end): (\S+)(.*)", line):
        thread, time, which, lock, flags = found.groups()
        if which == "begin" and "SPIN" not in flags:
            began[thread, lock] = float(time)
        elif (thread, lock) in began:
            waits += 1
            total += float(time) - began.pop((thread, lock))
print("|", sys.argv[1], "|", waits, "| %.2f |" % (total * 1e3), ours, "| %.2f | %.1f%% | %.4f |" % (ours_ns / 1e6, 100 * whole / max(ours, 1), ours_ns / 1e9 / total))' "$run"
done
