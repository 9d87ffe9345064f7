#!/usr/bin/env bash
# count_results.py compared with made-up results: what must fail does, and for its reason.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
results=$work/results allowed=$work/allowed

fresh() {
  rm -rf "$results"
  mkdir -p "$results/aarch64"
  : > "$allowed"
}

# gtest FILE CASE: a program's results, one passed case and CASE
gtest() {
  cat > "$results/$1" <<XML
<?xml version="1.0" encoding="UTF-8"?>
<testsuites><testsuite name="Suite">
<testcase name="Good" status="run" result="completed" classname="Suite" />
$2
</testsuite></testsuites>
XML
}

skipped='<testcase name="Skips" status="run" result="skipped" classname="Suite"><skipped message="t.cpp:3&#x0A;the tool [x] is not installed&#x0A;"/></testcase>'
failing='<testcase name="Fails" status="run" result="completed" classname="Suite"><failure message="no" type=""></failure></testcase>'

# ctest STATUS [ELEMENT]: CTest's word on `program`
ctest() {
  echo "<testsuite><testcase name=\"program\" classname=\"program\" status=\"$1\">${2:-}<system-out>SKIPPED: no kernel</system-out></testcase></testsuite>" \
    > "$results/ctest.xml"
}

# expect STATUS LAST-LINE [TEXT]: what the script says of the results as they are
expect() {
  local status=0 output
  output=$("$here/count_results.py" "$results" "$allowed") || status=$?
  if [ "$status" != "$1" ] || [ "$(tail -n 1 <<< "$output")" != "$2" ] || ! grep -qF -- "${3:-}" <<< "$output"; then
    printf 'line %s: expected status %s, "%s" and "%s"; status %s and\n%s\n' "${BASH_LINENO[0]}" "$1" "$2" "${3:-}" "$status" "$output"
    exit 1
  fi
}

fresh; expect 1 "0 passed, 0 failed, 0 skipped" "nothing ran"
fresh; gtest program.xml ""; expect 0 "1 passed, 0 failed, 0 skipped"
fresh; gtest program.xml "$failing"; expect 1 "1 passed, 1 failed, 0 skipped" "FAILED Suite.Fails"

# A skip: without leave; with leave; with leave for another reason, for another test, for another build.
fresh; gtest program.xml "$skipped"; expect 1 "1 passed, 0 failed, 1 skipped" "SKIPPED WITHOUT LEAVE Suite.Skips"
echo "Suite.Skips  # the tool [x] is not" > "$allowed"; expect 0 "1 passed, 0 failed, 1 skipped" "SKIPPED Suite.Skips"
echo "Suite.S*  # the * is not installed" > "$allowed"; expect 0 "1 passed, 0 failed, 1 skipped"
echo "Suite.Skips  # no network" > "$allowed"; expect 1 "1 passed, 0 failed, 1 skipped" "WITHOUT LEAVE"
echo "Suite.Other  # the tool" > "$allowed"; expect 1 "1 passed, 0 failed, 1 skipped" "WITHOUT LEAVE"
echo "aarch64:Suite.Skips  # the tool" > "$allowed"; expect 1 "1 passed, 0 failed, 1 skipped" "WITHOUT LEAVE"
echo "Suite.Skips" > "$allowed"; "$here/count_results.py" "$results" "$allowed" 2> /dev/null && { echo "a line without a reason was taken"; exit 1; }
fresh; gtest aarch64/program.xml "$skipped"
echo "aarch64:Suite.Skips  # the tool" > "$allowed"; expect 0 "1 passed, 0 failed, 1 skipped"
echo "Suite.Skips  # the tool" > "$allowed"; expect 1 "1 passed, 0 failed, 1 skipped" "SKIPPED WITHOUT LEAVE aarch64:Suite.Skips"
fresh; gtest vm-amd64-program.xml "$skipped"
echo "vm-amd64:Suite.Skips  # the tool" > "$allowed"; expect 0 "1 passed, 0 failed, 1 skipped"

# A skip of a CTest entry, a program that died, one that died after its cases passed, one that is counted by its cases.
fresh; ctest run '<skipped message="SKIP_RETURN_CODE=77"/>'; expect 1 "0 passed, 0 failed, 1 skipped" "SKIPPED WITHOUT LEAVE program"
echo "program  # no kernel" > "$allowed"; expect 0 "0 passed, 0 failed, 1 skipped"
fresh; ctest fail '<failure message=""/>'; expect 1 "0 passed, 1 failed, 0 skipped" "FAILED program"
gtest program.xml ""; expect 1 "1 passed, 1 failed, 0 skipped" "FAILED program"
gtest program.xml "$failing"; expect 1 "1 passed, 1 failed, 0 skipped" "FAILED Suite.Fails"
fresh; ctest run; gtest program.xml ""; expect 0 "1 passed, 0 failed, 0 skipped"
fresh; ctest notrun; expect 1 "0 passed, 1 failed, 0 skipped" "FAILED program did not run"
fresh; echo "<testsuites" > "$results/program.xml"; expect 1 "0 passed, 1 failed, 0 skipped" "cannot be read"

# What failed and ran once more: the second outcome counts, of the program and of its cases, and the first one is said.
# again STATUS: CTest's word on it then; the cases are gtest's, under again/
again() {
  mkdir -p "$results/again"
  sed "s/status=\"[a-z]*\"/status=\"$1\"/" "$results/ctest.xml" > "$results/again/ctest.xml"
}
failed='<failure message=""/>'
fresh; ctest fail "$failed"; again run; expect 0 "1 passed, 0 failed, 0 skipped" "RAN TWICE program"
fresh; ctest fail "$failed"; gtest program.xml "$failing"; again run; gtest again/program.xml ""
expect 0 "1 passed, 0 failed, 0 skipped" "RAN TWICE program"
fresh; ctest fail "$failed"; gtest program.xml ""; again fail; gtest again/program.xml "$failing"
expect 1 "1 passed, 1 failed, 0 skipped" "FAILED Suite.Fails"
fresh; ctest fail "$failed"; gtest program.xml "$failing"; gtest other.xml "$failing"; again run; gtest again/program.xml ""
expect 1 "2 passed, 1 failed, 0 skipped" "FAILED Suite.Fails"
fresh; ctest fail "$failed"; again fail; expect 1 "0 passed, 1 failed, 0 skipped" "FAILED program"
fresh; ctest run; gtest program.xml ""; again disabled; expect 0 "1 passed, 0 failed, 0 skipped"

# What was not built at all, and what failed elsewhere.
fresh; gtest program.xml ""; printf 'build.aarch64\tno arm64 list\n' > "$results/missing"
expect 1 "1 passed, 0 failed, 1 skipped" "SKIPPED WITHOUT LEAVE build.aarch64"
echo "build.aarch64  # no arm64 list" > "$allowed"; expect 0 "1 passed, 0 failed, 1 skipped"
fresh; gtest program.xml ""; printf 'fuzz.fuzz_elf\tcrashed\n' > "$results/failed"; expect 1 "1 passed, 1 failed, 0 skipped" "FAILED fuzz.fuzz_elf"

# The table of kernels.
fresh; gtest vm-amd64-program.xml '<testcase name="Row" status="run" classname="K"><properties><property name="kernels_row" value="6.1 x86_64 Row"/></properties></testcase>'
expect 0 "2 passed, 0 failed, 0 skipped" "6.1 x86_64 Row"
echo "all as expected"
