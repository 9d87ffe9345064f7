#!/usr/bin/env bash
# Runs clang-tidy over every file of src/ that BUILD compiles, and fails where it finds something. With WINDLASS_WHOLE=1 the static
# analyser, too. BUILD needs its compile_commands.json and the headers that are made when it is built.
# usage: tidy.sh BUILD [REGEX]      REGEX: only files whose path below src/ matches
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
version=22  # older ones match every declaration of every system header, which is four times the work
tidy=$(command -v run-clang-tidy-$version) || {
  echo "SKIPPED: there is no clang-tidy-$version"
  exit 0
}
# Clang's own complaints about libstdc++ 12 are off, as in cmake/Options.cmake, and those about what only GCC knows: a test's
# precompiled header and GCC's warnings, where a test compiles a file of src.
options=(-quiet -hide-progress -p "$1" -warnings-as-errors '*' -extra-arg=-Wno-deprecated-declarations -extra-arg=-Wno-gnu-anonymous-struct
  -extra-arg=-Wno-unknown-warning-option -extra-arg=-Wno-ignored-gch)
[ -z "${WINDLASS_WHOLE:-}" ] || options+=(-checks 'clang-analyzer-*')
TIMEFORMAT='processor time: %U s + %S s'
time "$tidy" "${options[@]}" "^$root/src/${2:-}" 2> >(grep -vE '^[0-9]+ warnings?( treated as errors?| generated|.*suppressed)' >&2)
