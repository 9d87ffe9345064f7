#!/usr/bin/env bash
# Runs one libFuzzer target for $fuzz_seconds over its kept corpus; new finds stay in the build folder.
set -u
fuzzer=$1
name=$(basename "$fuzzer")
kept=build/fuzz-kept/$name
grown=build/fuzz-corpus/$name
rm -rf "$kept"
mkdir -p "$kept" "$grown" build/fuzz-artifacts
tar -xf "tests/corpus/$name.tar" -C "$kept" || exit 1
args=("$grown" "$kept")
# What an analysis costs grows with the code that there is. The kept inputs of 4 KiB, which exhaust its bounds, are for the replay.
[ "$name" != fuzz_synthesis ] || args+=(-max_len=256)
log=build/fuzz-artifacts/$name.log
if "$fuzzer" -max_total_time="${fuzz_seconds:-60}" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
  -artifact_prefix="build/fuzz-artifacts/$name-" "${args[@]}" >"$log" 2>&1; then
  echo "ok   $name: $(sed -n 's/^stat::number_of_executed_units: *//p' "$log") executions"
else
  echo "FAIL $name"
  tail -40 "$log"
  exit 1
fi
