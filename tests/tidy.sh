#!/usr/bin/env bash
# Runs clang-tidy over files of src/ that BUILD compiles, and fails where it finds something: over those that the last ten commits
# changed and every eighth of the others, another eighth with each commit, since all take twenty minutes of two processors; with
# WINDLASS_WHOLE=1 over all, and the static analyser, too. Each file is read by itself and without precompiled headers
# (cmake/single_files.py), so a file that does not include what it uses does not compile here. BUILD needs its compile_commands.json
# and the headers that are made when it is built.
# usage: tidy.sh BUILD [REGEX]      REGEX: all files whose path below src/ matches, and no others
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
version=22  # older ones match every declaration of every system header, which is four times the work
tidy=$(command -v run-clang-tidy-$version) || {
  echo "SKIPPED: there is no clang-tidy-$version"
  exit 0
}
database=$(mktemp -d)
trap 'rm -rf "$database"' EXIT
"$root/cmake/single_files.py" "$1" > "$database/compile_commands.json"
# Clang's own complaints about libstdc++ 12 are off, as in cmake/Options.cmake, and those about GCC's warnings, which it does not know.
options=(-quiet -hide-progress -p "$database" -warnings-as-errors '*' -extra-arg=-Wno-deprecated-declarations -extra-arg=-Wno-gnu-anonymous-struct
  -extra-arg=-Wno-unknown-warning-option)
[ -z "${WINDLASS_WHOLE:-}" ] || options+=(-checks 'clang-analyzer-*')
files=("^$root/src/${2:-}")
if [ $# -lt 2 ] && [ -z "${WINDLASS_WHOLE:-}" ]; then
  commit=$(git -C "$root" rev-parse --short=4 HEAD 2> /dev/null || echo 0)
  mapfile -t files < <({
    find "$root/src" -name '*.cpp' | LC_ALL=C sort | awk -v turn=$((16#$commit % 8)) 'NR % 8 == turn'
    git -C "$root" log -10 --format= --name-only --diff-filter=AM -- 'src/*.cpp' 2> /dev/null | sed "s|^|$root/|"
  } | LC_ALL=C sort -u | sed 's/.*/^&$/')
  echo "${#files[@]} files: the eighth of this commit, and what changed of late"
fi
TIMEFORMAT='processor time: %U s + %S s'
time "$tidy" "${options[@]}" "${files[@]}" 2> >(grep -vE '^[0-9]+ warnings?( treated as errors?| generated|.*suppressed)' >&2)
