#!/usr/bin/env bash
# All benchmarks in one run, each beside its peers; rewrites what stands below the marker in docs/figures/benchmarks.md.
# Needs root, a release build and a machine with nothing else to do. usage: bench/run.sh [SECONDS a timed workload]
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-5}
build=build/release
cmake --build --preset release --target windlass-cli bench_compile bench_pe bench_kernel bench_walk \
  bench_registration bench_manager bench_managed >/dev/null

page=docs/figures/benchmarks.md
new=$(mktemp)
trap 'rm -f "$new"' EXIT
sed '/^<!-- measured/q' "$page" > "$new"
{
  echo
  echo "Machine: \`$(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -1), $(nproc) CPUs, Linux $(uname -r), $(date -u +%F)\`"
  echo
  echo "## Evaluating and compiling \`.eh_frame\`, one core"
  echo
  echo '```'
  $build/bench/bench_compile
  echo '```'
  echo
  echo "## Every ELF file of the machine"
  echo
  echo '```'
  $build/bench/bench_compile --whole-machine
  echo '```'
  echo
  echo "## Walking the own stack"
  echo
  echo '```'
  WINDLASS_LLVM_UNWIND=$(bench/fetch_llvm_unwind.sh) $build/bench/bench_walk
  echo '```'
  echo
  echo "## Generated code: registered, and found by a code manager"
  echo
  echo '```'
  $build/bench/bench_registration --long
  echo
  $build/bench/bench_manager
  echo '```'
  echo
  echo "## Managed stacks: a frame, an exception, stopping threads"
  echo
  echo '```'
  $build/bench/bench_managed
  echo '```'
  echo
  echo "## Windows images: a frame, the rows of a file, whole processes"
  echo
  echo '```'
  corpora=$build/corpora/pe
  sh tests/corpora/fetch_pe.sh "$corpora" >/dev/null || [ $? -eq 3 ]  # 3: some are out of reach
  for file in "$corpora"/node-26/bin/node.exe "$corpora"/node-20-arm64/bin/node.exe; do
    if [ -f "$file" ]; then
      $build/bench/bench_pe --windlass $build/src/cli/windlass "$file"
    else
      echo "SKIPPED: $file was not fetched"
    fi
  done
  echo '```'
  echo
  echo "## Windows x64: beside the system's unwinder in one process, under Wine"
  echo
  echo '```'
  if cmake --preset mingw >/dev/null 2>&1; then
    cmake --build --preset mingw --target bench_windows_unwind >/dev/null
    sh cmake/wine.sh build/mingw build/mingw/bench/wine/bench_windows_unwind.exe
    sh cmake/wine.sh build/mingw --end
  else
    echo "SKIPPED: there is no MinGW"
  fi
  echo '```'
  echo
  echo "## Kernel time a sample and a frame"
  echo
  echo '```'
  $build/bench/bench_kernel recursion
  echo
  $build/bench/bench_kernel -- clang -std=c++20 -O2 -c bench/workloads/work.cpp -o /dev/null
  echo '```'
  echo
  echo "## \`windlass record\` beside \`perf record\`"
  echo
  bench/compare_perf.sh "$seconds"
} >> "$new"
sed "s|$PWD/||g" "$new" > "$page"
