#!/bin/bash
# What waiting time costs, beside the way of bcc's offcputime: sums by stack in the kernel, stacks by frame pointers. The
# same program is given to bpftrace at the tracepoint sched_switch, since offcputime itself needs kprobes and headers of
# the kernel. Prints the CPU seconds of a program with 100,000 waits, the least of ROUNDS runs by turns. The kernel side
# runs on that program's time.
#
# bench/off_cpu_peer.sh [ROUNDS]      needs root, bpftrace and a release build
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
windlass=${WINDLASS:-$PWD/build/release/src/cli/windlass}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cc -O2 bench/workloads/hand_over.c -o "$work/hand_over" -pthread
cat >"$work/run.sh" <<END
TIMEFORMAT='%3U %3S'; { time taskset -c 1 $work/hand_over 50000; } 2>$work/time
END
off='tracepoint:sched:sched_switch {
  if (args->prev_comm == "hand_over") { @s[args->prev_pid] = nsecs; @u[args->prev_pid] = ustack; @k[args->prev_pid] = kstack; }
  $n = args->next_pid;
  if (@s[$n]) { @off[@k[$n], @u[$n]] = sum(nsecs - @s[$n]); delete(@s[$n]); }
}'
for ((round = 0; round < ${1:-5}; ++round)); do
  bash "$work/run.sh"
  echo "none $(<"$work/time")"
  "$windlass" record --off-cpu -F 1 -o "$work/p.pb.gz" -- bash "$work/run.sh" >"$work/said" 2>&1
  echo "windlass $(<"$work/time")"
  bpftrace -o "$work/stacks" -c "/bin/bash $work/run.sh" -e "$off" 2>/dev/null
  echo "bpftrace $(<"$work/time")"
done | awk '{ s = $2 + $3; if (!($1 in least) || s < least[$1]) least[$1] = s } END { for (n in least) print n, least[n] }'
grep 'of off-cpu' "$work/said"
