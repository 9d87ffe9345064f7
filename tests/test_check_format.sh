#!/usr/bin/env bash
# check_format.sh compared with what it must find in a made-up tree.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work"/tree/{src/sub,bpf,build/release}
cd "$work/tree"
echo 'BasedOnStyle: Google' > .clang-format

# expect STATUS TEXT: what the script says of the tree as it is
expect() {
  local status=0 output
  output=$("$here/check_format.sh" "$work/tree") || status=$?
  case $output in SKIPPED*) echo "$output"; exit 0 ;; esac
  if [ "$status" != "$1" ] || ! grep -qF -- "$2" <<< "$output"; then
    printf 'line %s: expected status %s and "%s"; status %s and\n%s\n' "${BASH_LINENO[0]}" "$1" "$2" "$status" "$output"
    exit 1
  fi
}

echo 'int  made;' > build/release/made.h  # not ours
echo 'int good;' > src/good.cpp
expect 0 ""
for file in src/sub/bad.cpp src/bad.h src/bad.cc bpf/bad.bpf.c; do
  echo 'int  bad ;' > "$file"
  expect 1 "-i ./$file)"
  rm "$file"
done
echo 'int  bad ;' | tee src/a.h > src/b.h
expect 1 "-i ./src/a.h ./src/b.h)"
echo "all as expected"
