#!/usr/bin/env bash
# Fails, and names the files and the command that mends them, where clang-format would change a file below ROOT.
# usage: check_format.sh ROOT
set -euo pipefail
cd "$1"
version=14  # Debian 12's; others lay out some things differently
clang_format=$(command -v clang-format-$version) || {
  echo "SKIPPED: there is no clang-format-$version"
  exit 0
}

files() { find . -path './build*' -prune -o -path ./out -prune -o -type f \( -name '*.h' -o -name '*.c' -o -name '*.cc' -o -name '*.cpp' \) -print0; }

errors=$(files | xargs -0 -P "$(nproc)" -n 100 "$clang_format" --dry-run --Werror 2>&1) && exit 0
wrong=$(sed -nE 's/^([^ :]+):[0-9]+:[0-9]+: error: .*/\1/p' <<< "$errors" | sort -u)
[ -n "$wrong" ] || { echo "$errors"; exit 1; }
echo "not formatted:"
sed 's/^/  /' <<< "$wrong"
echo "to mend them: (cd $PWD && clang-format-$version -i" $wrong')'
exit 1
