#!/usr/bin/env bash
# Memory and CPU time of `windlass agent` beside busy processes that come and go. Prints a Markdown table, a row a minute.
# usage: bench/agent_soak.sh [MINUTES] [PROCESSES] [OPTION...]        needs root and a release build
#
# As many loops as PROCESSES run compilers and interpreters, each for a few seconds. OPTIONs are the agent's. At most 100
# loops compile, since a compiler takes 100 MB. Short processes come and go in between.
#   WINDLASS    the command (build/release/src/cli/windlass)
#   SOAK_WITH   a command that starts each loop, for example to bound their CPU time: "cgexec -g cpu:soak"
set -u
minutes=${1:-10}
processes=${2:-100}
[ $# -gt 0 ] && shift
[ $# -gt 0 ] && shift
root=$(cd "$(dirname "$0")/.." && pwd)
windlass=${WINDLASS:-$root/build/release/src/cli/windlass}
work=$(mktemp -d)
loops=()
agent=
end() {
  [ -n "$agent" ] && kill "$agent" 2>/dev/null
  for loop in "${loops[@]}"; do kill -- "-$loop" 2>/dev/null; done
  wait 2>/dev/null
  rm -rf "$work"
}
trap end EXIT
trap 'exit 1' INT TERM

cat >"$work/one.cpp" <<'END'
#include <algorithm>
#include <map>
#include <regex>
#include <string>
#include <vector>
int main(int count, char** words) {
  std::map<std::string, std::vector<int>> seen;
  for (int i = 0; i < count; ++i) seen[words[i]].push_back(i);
  std::vector<std::string> sorted;
  for (const auto& [word, places] : seen) sorted.push_back(word);
  std::sort(sorted.begin(), sorted.end());
  return std::regex_match(sorted[0], std::regex("a+b"));
}
END
cat >"$work/one.py" <<'END'
import hashlib, json, re, time
def fold(n): return n if n < 2 else fold(n - 1) + fold(n - 2)
end = time.process_time() + 0.5
while time.process_time() < end:
    fold(12)
    json.loads(json.dumps({"k%d" % i: [i] * 5 for i in range(100)}))
    re.sub("[a-f]+", "x", hashlib.sha256(b"y" * 1000).hexdigest())
END
# Each process has a name of its own, as those of builds and scripts do.
cat >"$work/loop" <<'END'
#!/bin/bash
cd "$1"
for ((round = $2; ; ++round)); do
  case $((round % 4)) in
    0) if (($2 < 100)); then g++ -O2 -c one.cpp -o "$2.o"; else sort /etc/services | uniq -c | wc -l >"$2.out"; fi ;;
    1) python3 one.py ;;
    2) perl -e 'my %h; for my $i (1 .. 3e5) { $h{$i % 997} .= "x" } print scalar keys %h' >"$2.out" ;;
    3) head -c 4000000 /bin/bash | gzip -9 >"$2.out" ;;
  esac
done
END
chmod +x "$work/loop"

set -m # a group of processes for each loop
for ((i = 0; i < processes; ++i)); do
  ${SOAK_WITH:-} "$work/loop" "$work" "$i" </dev/null >/dev/null 2>&1 &
  loops+=($!)
done
set +m
"$windlass" agent --store "$work/store.db" -a --metrics "unix:$work/metrics" "$@" >"$work/agent.out" 2>&1 &
agent=$!

field() { awk -v key="$1:" '$1 == key { print int($2 / 1024) }' "/proc/$agent/status"; }
ticks=$(getconf CLK_TCK)
cpu() { awk '{ sub(/.*\) /, ""); print $12 + $13 }' "/proc/$agent/stat"; }
echo "Machine: \`$(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -1), $(nproc) CPUs, Linux $(uname -r), $(date -u +%F); $processes loops\`"
echo
echo "| minute | resident, MB | of it anonymous, MB | CPU, % of the machine | processes a minute | store, MB |"
echo "|---|---|---|---|---|---|"
before=$(cpu)
forks=$(awk '$1 == "processes" { print $2 }' /proc/stat)
for ((minute = 1; minute <= minutes; ++minute)); do
  sleep 60
  kill -0 "$agent" 2>/dev/null || { cat "$work/agent.out" >&2; exit 1; }
  now=$(cpu)
  forks_now=$(awk '$1 == "processes" { print $2 }' /proc/stat)
  share=$(awk -v used=$((now - before)) -v hz="$ticks" -v n="$(nproc)" 'BEGIN { printf "%.2f", 100 * used / hz / 60 / n }')
  echo "| $minute | $(field VmRSS) | $(field RssAnon) | $share | $((forks_now - forks)) | $(du -m "$work/store.db" | cut -f1) |"
  before=$now
  forks=$forks_now
done
echo
curl -s --unix-socket "$work/metrics" http://agent/metrics | sed -n '/^windlass_agent_lost.* [1-9]/p'
kill -TERM "$agent"
wait "$agent"
status=$?
agent=
sed -n '/samples are in/p;/dropped/p' "$work/agent.out"
exit $status
