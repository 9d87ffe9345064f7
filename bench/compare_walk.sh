#!/usr/bin/env bash
# `windlass walk` beside `eu-stack` and gdb's `thread apply all bt` on live programs and on core files of them; prints
# Markdown tables.
# usage: bench/compare_walk.sh [RUNS] [WORKLOAD...]      needs root (or ptrace), gdb, eu-stack and a release build
#
#   frames     of all threads; inlined functions do not count; of gdb's "+N" are no code, but other words of the stack
#   fewer/more threads for which windlass found fewer or more frames than the peer
#   ms         the shortest wall time of RUNS runs (5), names included
#   x          the peer's time as a multiple of windlass's
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
runs=${1:-5}
[ $# -gt 0 ] && shift
windlass=${WINDLASS:-$root/build/release/src/cli/windlass}
work=$(mktemp -d)
started=()
cleanup() {
  for pid in "${started[@]}"; do kill -9 "$pid" 2>/dev/null || true; done
  rm -rf "$work"
}
trap cleanup EXIT

cat > "$work/idle.py" <<'PY'
import threading, time
def deep(n):
    time.sleep(1000) if n == 0 else deep(n - 1)
for n in (5, 20): threading.Thread(target=deep, args=(n,), daemon=True).start()
sorted([2, 1], key=lambda _: deep(10))
PY
cat > "$work/idle.js" <<'JS'
function deep(n) { return n == 0 ? require('child_process').execSync('exec sleep 1000') : [n].map(deep.bind(null, n - 1)); }
setTimeout(deep, 10, 8);
JS
cat > "$work/Idle.java" <<'JAVA'
public class Idle {
  static void deep(int n) throws Exception { if (n == 0) Thread.sleep(1000000); else deep(n - 1); }
  public static void main(String[] a) throws Exception {
    new Thread(() -> { try { deep(30); } catch (Exception e) { } }).start();
    deep(10);
  }
}
JAVA
g++ -std=c++20 -O2 -g1 -fno-optimize-sibling-calls -pthread "$root/tests/workloads/threads.cpp" -o "$work/threads"
command -v javac >/dev/null && javac -d "$work" "$work/Idle.java"
# Every frame of every thread past main, without those that are not on the stack (inlined, guessed tail calls); those
# whose pc is no code at all apart.
cat > "$work/count.py" <<'PY'
import gdb, os
code = []
for line in open(os.environ['MAPS']):
    where, rights = line.split()[:2]
    if 'x' in rights: code.append([int(x, 16) for x in where.split('-')])
for t in gdb.selected_inferior().threads():
    t.switch()
    real, invented, f = 0, 0, gdb.newest_frame()
    try:
        while f:
            if f.type() not in (gdb.INLINE_FRAME, gdb.TAILCALL_FRAME):
                if any(begin <= f.pc() < end for begin, end in code): real += 1
                else: invented += 1
            f = f.older()
    except gdb.error: pass
    print('thread', t.ptid[1], real, invented)
PY

python=/usr/bin/python3
[ -x $python ] || python=$(command -v python3)
declare -A commands=(
  [c++]="$work/threads"
  [python3]="$python $work/idle.py"
  [node]="node $work/idle.js"
  [java]="java -Xmx24m -XX:ReservedCodeCacheSize=16m -cp $work Idle"
)
names=(c++ python3 node java)
[ $# -gt 0 ] && names=("$@")
gdb=(gdb -nx -batch -ex 'set debuginfod enabled off' -ex 'set pagination off' -ex 'set backtrace past-main on'
     -ex 'set backtrace past-entry on')

# "THREAD FRAMES" a line, by each tool.
frames_windlass() {
  "$windlass" walk --json "$@" 2>/dev/null |
    sed -E 's/^\{"thread":([0-9]+).*/\1 &/' | awk '{ n = gsub(/"pc":/, ""); print $1, n }' | sort
}
frames_eu() { "$@" 2>/dev/null | awk '/^TID/ { sub(":", "", $2); t = $2; n[t] += 0 } /^#/ { ++n[t] } END { for (t in n) print t, n[t] }' | sort; }
frames_gdb() { "${gdb[@]}" "$@" -ex "source $work/count.py" </dev/null 2>/dev/null | sed -n 's/^thread //p' | sort; }

# The shortest of the runs' wall times in ms.
shortest_ms() {
  for ((i = 0; i < runs; i++)); do
    local begin end
    begin=$(date +%s%N)
    "$@" >/dev/null 2>&1 </dev/null || true
    end=$(date +%s%N)
    echo $(((end - begin) / 10000))
  done | sort -n | awk 'NR == 1 { printf "%.1f", $1 / 100 }'
}
total() { awk '{ n += $2; wild += $3 } END { printf "%d%s", n, (wild > 0 ? " +" wild : "") }' "$1"; }
compare() {  # fewer/more of the first against the second
  join "$1" <(cut -d ' ' -f 1,2 "$2") | awk '$2 < $3 { ++fewer } $2 > $3 { ++more } END { printf "%d/%d", fewer, more }'
}
times() { awk -v a="$1" -v b="$2" 'BEGIN { printf "%.1f", (a > 0 ? b / a : 0) }'; }

row() {  # name; windlass's, eu-stack's and gdb's arguments by the global arrays
  frames_windlass "${w_args[@]}" > "$work/w"
  frames_eu eu-stack "${e_args[@]}" > "$work/e"
  frames_gdb "${g_args[@]}" > "$work/g"
  local w e g wi ei
  w=$(shortest_ms "$windlass" walk "${w_args[@]}")
  e=$(shortest_ms eu-stack "${e_args[@]}")
  wi=$(shortest_ms "$windlass" walk -i "${w_args[@]}")
  ei=$(shortest_ms eu-stack -i "${e_args[@]}")
  g=$(shortest_ms "${gdb[@]}" "${g_args[@]}" -ex 'thread apply all bt')
  local complete
  complete=$("$windlass" walk --json "${w_args[@]}" 2>/dev/null | grep -c '"end":"complete"' || true)
  echo "| $1 | $(wc -l < "$work/w") | $complete | $(total "$work/w") | $(total "$work/e") | $(total "$work/g") |" \
    "$(compare "$work/w" "$work/e") | $(compare "$work/w" "$work/g") |" \
    "$w | $e ($(times "$w" "$e")x) | $wi | $ei ($(times "$wi" "$ei")x) | $g ($(times "$wi" "$g")x) |"
}

echo "| target | threads | whole | frames | eu-stack | gdb | fewer/more than eu-stack | than gdb | ms | eu-stack | ms -i | eu-stack -i | gdb |"
echo "|---|---|---|---|---|---|---|---|---|---|---|---|---|"
for name in "${names[@]}"; do
  ${commands[$name]} >/dev/null 2>&1 </dev/null &
  pid=$!
  started+=("$pid")
  sleep 3
  export MAPS=$work/maps
  cat "/proc/$pid/maps" > "$MAPS"
  w_args=("$pid") e_args=(-p "$pid") g_args=(-p "$pid")
  row "$name, live"
  gcore -o "$work/core" "$pid" >/dev/null 2>&1
  exe=$(readlink -f "/proc/$pid/exe")
  w_args=("$work/core.$pid") e_args=("--core=$work/core.$pid" -e "$exe") g_args=("$exe" "$work/core.$pid")
  row "$name, core"
  children=$(cat "/proc/$pid/task/"*/children)
  # shellcheck disable=SC2086
  kill -9 "$pid" $children 2>/dev/null || true
  wait "$pid" 2>/dev/null || true
  rm -f "$work/core.$pid"
done
