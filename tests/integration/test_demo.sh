#!/usr/bin/env bash
# Builds the command of ./demo where ./demo builds it. What it has works; of what it has not it says so.
# usage: test_demo.sh SOURCE_DIR
set -euo pipefail
cd "$1"
skip() { echo "SKIPPED: $*"; exit 0; }
fail() { echo "$*"; exit 1; }
# shellcheck disable=SC1091
. cmake/setup.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
windlass_build demo > "$work/log" 2>&1 || { grep -m 20 -E 'error|undefined' "$work/log" || tail -n 20 "$work/log"; fail "the demo does not build"; }
windlass=$PWD/build/demo/src/cli/windlass
cd "$work"

# refuses STATUS WORDS ARGUMENT...
refuses() {
  local expected=$1 words=$2 status=0
  shift 2
  "$windlass" "$@" > out 2>&1 < input || status=$?
  [ $status -eq "$expected" ] && grep -q -- "this build $words.* Way out: " out || { cat out; fail "windlass $*: status $status"; }
}
printf 'main;work 3\n' > input
for command in dump rows top agent serve symbols store walk mcp emit; do
  refuses 3 "has no windlass $command" $command
  refuses 3 "has no windlass $command" $command --anything 1
done
refuses 3 "reads no files of other tools" report -
refuses 3 "reads no files of other tools" view --no-browser -
refuses 3 "has no stores" report clickhouse://127.0.0.1:1

"$windlass" doctor | tail -n 1 | grep -q works || skip "no privilege to sample"
"$windlass" record -F 997 -o p.pb.gz -- "$windlass" help record > /dev/null 2> said || { cat said; fail "nothing is recorded"; }
grep -q 'knows no managed runtimes' said || { cat said; fail "record does not say what it leaves out"; }
"$windlass" report p.pb.gz | grep -q samples || fail "no report"
"$windlass" report --html p.pb.gz | grep -q '<html' || fail "no page"
refuses 2 "has no report --annotate" report --annotate main p.pb.gz
refuses 3 "has no report --otlp" report --otlp p.pb.gz
